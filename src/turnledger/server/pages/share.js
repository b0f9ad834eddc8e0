
"use strict";
// First of all: the code must not stay where it can be seen, copied or sent on.
let code = "";
function takeCode() {
  code = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
}
takeCode();

const element = id => document.getElementById(id);
const PAGE = 50;

// A frame may be denied its storage: then all is forgotten with the page.
const unkept = new Map();
const kept = {
  get(name) { try { return sessionStorage.getItem(name); } catch { return unkept.get(name) ?? null; } },
  set(name, value) { try { sessionStorage.setItem(name, value); } catch { unkept.set(name, value); } },
  drop(name) { try { sessionStorage.removeItem(name); } catch { unkept.delete(name); } },
};

function freshNonce() {
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");
}

async function ask(method, path, token, body) {
  const headers = {};
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, body: body && JSON.stringify(body), credentials: "omit", cache: "no-store",
  });
  const told = await answer.json();
  if (answer.ok) return told;
  const problem = new Error(told.error?.message ?? "The server did not answer.");
  problem.status = answer.status;
  throw problem;
}

// The link is known here by its last letters, which are a checksum and give nothing away.
const linkOf = code => code ? `turnledger ${code.slice(-6)}` : kept.get("turnledger last");

async function token() {
  const link = linkOf(code);
  const had = link && kept.get(`${link} token`);
  if (had) {
    try {
      await ask("GET", "/api/tokens/self", had);
      return had;
    } catch (problem) {
      if (problem.status !== 401) throw problem;
      kept.drop(`${link} token`);
    }
  }
  if (!code) throw new Error("This page shows what a link leads to. Open the link again, as you were given it.");
  // Until there is an answer, it is one and the same visit, however often it is asked for.
  const nonce = kept.get(`${link} nonce`) ?? freshNonce();
  kept.set(`${link} nonce`, nonce);
  try {
    const visit = await ask("POST", "/api/shares/exchange", null, {code, nonce});
    kept.set(`${link} token`, visit.token);
    kept.set("turnledger last", link);
    kept.drop(`${link} nonce`);
    return visit.token;
  } catch (problem) {
    if (problem.status === 404) kept.drop(`${link} nonce`);
    throw problem;
  }
}

const textOf = item => typeof item.content === "string"
  ? item.content
  : (item.content ?? []).map(part => part.text ?? `[${part.type}]`).join("\n");

function said(item) {
  const line = document.createElement("li"), who = document.createElement("b");
  const text = document.createElement("p");
  line.dataset.role = item.role;
  who.textContent = item.role === "user" ? "User" : "Assistant";
  text.textContent = textOf(item);
  line.append(who, text);
  return line;
}

async function showTurns(shown, bearer) {
  const lines = shown.turns.flatMap(turn => [...turn.input, ...turn.output]).map(said);
  element("turns").prepend(...lines);
  const first = shown.turns[0]?.number ?? 1;
  element("older").hidden = first <= 1;
  element("older").onclick = () => attempt(async () => {
    const path = `/api/chats/${shown.id}?limit=${PAGE}&before=${first}`;
    await showTurns(await ask("GET", path, bearer), bearer);
  });
}

async function arrive() {
  element("turns").replaceChildren();
  element("older").hidden = true;
  const bearer = await token();
  const me = await ask("GET", "/api/tokens/self", bearer);
  const until = me.expires_at === null ? "" : ` until ${new Date(me.expires_at).toLocaleString()}`;
  if (me.chat === null) {
    element("title").textContent = me.name || "Welcome";
    const models = me.models.length ? ` You may ask: ${me.models.join(", ")}.` : "";
    element("about").textContent = `You are ${me.owner}, a guest of ${me.chat_scope}${until}.${models}`;
    return;
  }
  const shown = await ask("GET", `/api/chats/${me.chat}?limit=${PAGE}`, bearer);
  element("title").textContent = shown.title || me.name || "Shared with you";
  element("about").textContent = `You can read this chat${until}.`;
  await showTurns(shown, bearer);
}

async function attempt(step) {
  element("again").hidden = true;
  try {
    await step();
    document.body.dataset.state = "shown";
  } catch (problem) {
    element("about").textContent = problem.message;
    // What the server refused for good is not worth another try.
    element("again").hidden = problem.status >= 400 && problem.status < 500 && problem.status !== 429;
    element("again").onclick = () => attempt(step);
    document.body.dataset.state = "refused";
  }
}

attempt(arrive);

// Another link that is opened here loads no page: it only changes the address.
addEventListener("hashchange", () => {
  if (location.hash.length < 2) return;
  takeCode();
  document.body.dataset.state = "";
  attempt(arrive);
});
