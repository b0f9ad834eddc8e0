/** One request, as often as it takes. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, errors, type ClientOptions } from "../src/index.js";
import {
  all,
  CHAT,
  CHAT_INFO,
  error,
  events,
  finished,
  json,
  REFUSED,
  ScriptedServer,
  SILENCE,
  STARTED,
} from "./scripted-server.js";
import { chatOf } from "./following.js";

const info = json({ ...CHAT_INFO, turns: [], before: null, attempts: [] });

test("pauses double up to the longest, each a random part shorter", async () => {
  const refused = Array.from({ length: 8 }, () => REFUSED) as (typeof REFUSED)[];
  const server = new ScriptedServer(...refused, info);
  await chatOf(server, { retries: { times: 8, maxPause: 1_000 } }).info();
  assert.deepEqual(server.pauses, [100, 200, 400, 800, 1000, 1000, 1000, 1000]);
  const lucky = new ScriptedServer(REFUSED, info);
  await chatOf(lucky, { random: () => 0 }).info();
  assert.deepEqual(lucky.pauses, [50]);
});

test("as long as a server asks for is waited, and no two clients come back at once", async () => {
  const pauses: number[] = [];
  for (const random of [0, 0.5, 1]) {
    const server = new ScriptedServer(error(429, "server_busy", { "retry-after": "7" }), info);
    await server.client({ random: () => random }).chats.open(CHAT).info();
    pauses.push(...server.pauses);
  }
  assert.deepEqual(pauses, [7000, 8750, 10500]);
});

test("no retry is begun when patience is at its end", async () => {
  const server = new ScriptedServer(REFUSED, REFUSED, REFUSED);
  await assert.rejects(
    chatOf(server, { retries: { patience: 500 } }).info(),
    errors.ServerUnavailable,
  );
  assert.deepEqual(server.pauses, [100, 200]);
  const asking = new ScriptedServer(error(503, "store_unavailable", { "retry-after": "3600" }));
  await assert.rejects(chatOf(asking).info(), errors.StoreUnavailable);
  assert.deepEqual(asking.pauses, []);
});

test("what says not to be repeated is not, nor what another request would not mend", async () => {
  const refusals = [
    error(503, "server_busy", { "x-should-retry": "false" }),
    error(502, "model_unavailable"),
    error(409, "conversation_busy"),
    error(500, "store_corrupt", { "x-should-retry": "false" }),
    error(400, "invalid_input"),
  ];
  for (const refusal of refusals) {
    const server = new ScriptedServer(refusal);
    await assert.rejects(chatOf(server).info(), errors.TurnledgerError);
    server.done();
  }
});

test("an answer that is not whole is asked for again", async () => {
  const server = new ScriptedServer(
    { pieces: ['{"id":'], ending: "cut" },
    { pieces: ['{"id"'] },
    { pieces: [], ending: "silence" },
    info,
  );
  assert.equal((await chatOf(server).info()).id, CHAT);
  server.done();
});

test("a text in pieces of bytes is whole", async () => {
  const bytes = new TextEncoder().encode(
    JSON.stringify({ ...CHAT_INFO, title: "é🦊", turns: [], before: null, attempts: [] }),
  );
  const server = new ScriptedServer({ pieces: Array.from(bytes, (byte) => Uint8Array.of(byte)) });
  assert.equal((await chatOf(server).info()).title, "é🦊");
});

test("what is told once is not asked for twice", async () => {
  const lost = new ScriptedServer({ pieces: [], ending: "cut" });
  await assert.rejects(
    lost.client().tokens.create({ scopes: ["chats:read"] }),
    (problem) => problem instanceof errors.ServerUnavailable && /may have been carried out/.test(problem.message),
  );
  lost.done();
  const refused = new ScriptedServer(
    error(429, "too_many_requests"),
    json({ id: "tok_1", chat_scope: null, token: "tlt_1" }),
  );
  assert.equal((await refused.client().tokens.create({ scopes: ["chats:read"], expiresIn: 60 })).token, "tlt_1");
  assert.deepEqual(refused.heard[1]?.body, { scopes: ["chats:read"], expires_in: 60 });
});

test("a chat is deleted again where the answer was lost: to the server that is the same", async () => {
  const server = new ScriptedServer({ pieces: [], ending: "cut" }, json({ id: CHAT, state: "deleted", purge_at: 1 }));
  await chatOf(server).delete();
  assert.deepEqual(server.heard[0], server.heard[1]);
  server.done();
});

test("what is long has time to arrive", async () => {
  const server = new ScriptedServer({ pieces: ['{"done":{}}'] });
  await server.client().importChats("a".repeat(1_600_000));
  assert.deepEqual(server.waits, [SILENCE + 100_000, SILENCE, SILENCE]);
});

test("the token goes with each request, and may be another each time", async () => {
  let count = 0;
  const server = new ScriptedServer(REFUSED, info);
  await chatOf(server, { apiKey: async () => `tlt_${++count}` }).info();
  assert.deepEqual(
    server.heard.map((each) => each.headers["authorization"]),
    ["Bearer tlt_1", "Bearer tlt_2"],
  );
});

test("a token does not go over plain http to another machine unless that is allowed", async () => {
  const server = new ScriptedServer(info, info, info, info);
  const ask = (url: string, options: ClientOptions): Promise<unknown> =>
    new Client(url, { ...server.options, ...options }).chats.open(CHAT).info();
  for (const url of ["http://chat.example.com", "http://10.0.0.5:8383", "http://localhost.example", "http://evil.test/a.localhost"]) {
    await assert.rejects(ask(url, { apiKey: "tlt_x" }), /Use https, or set allowHttp/);
  }
  assert.equal(server.heard.length, 0);
  await ask("http://chat.example.com", {});
  await ask("http://chat.example.com", { apiKey: "tlt_x", allowHttp: true });
  await ask("http://[::1]:8383", { apiKey: "tlt_x" });
  await ask("http://127.0.0.1:8383", { apiKey: "tlt_x" });
});

test("a signal that outlives a call knows nothing of it any more", async () => {
  const { signal } = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...given: any[]) => (++listeners, (addEventListener as any).apply(signal, given));
  signal.removeEventListener = (...given: any[]) => (--listeners, (removeEventListener as any).apply(signal, given));
  const server = new ScriptedServer(REFUSED, error(503, "shutting_down"), info);
  await chatOf(server).info({ signal });
  const streaming = new ScriptedServer(events([STARTED], "cut"), events([finished()], "end", 2));
  await all(chatOf(streaming).send("Hi", { stream: true, signal }));
  const left = new ScriptedServer(events([STARTED], "silence"));
  for await (const _ of chatOf(left).send("Hi", { stream: true, signal })) break;
  const failing = new ScriptedServer(error(400, "invalid_input"));
  await assert.rejects(chatOf(failing).send("Hi", { signal }), errors.InvalidInput);
  assert.equal(listeners, 0);
});

test("who leaves leaves no connection open", async () => {
  const server = new ScriptedServer(events([STARTED, STARTED], "silence"));
  for await (const _ of chatOf(server).send("Hi", { stream: true })) break;
  server.done();
  const headers = { "content-type": "application/x-ndjson" };
  const lines = new ScriptedServer({ headers, pieces: ["a\nb\n"], ending: "silence" });
  for await (const _ of chatOf(lines).export()) break;
  await Promise.resolve();
  lines.done();
});

test("a signal that was given before anything is sent sends nothing", async () => {
  const server = new ScriptedServer();
  const signal = AbortSignal.abort("never mind");
  await assert.rejects(chatOf(server).info({ signal }), (problem) => problem === "never mind");
  server.done();
});

test("nobody follows a redirect: what is said is for this server", async () => {
  let redirect: unknown;
  const server = new ScriptedServer();
  const fetch = async (_: string, request: RequestInit): Promise<Response> => {
    ({ redirect } = request);
    return new Response(null, { status: 307, headers: { location: "http://elsewhere.test" } });
  };
  await assert.rejects(server.client({ fetch }).models(), { code: "status_307" });
  assert.equal(redirect, "manual");
});

test("a token that is none is not sent, nor told", async () => {
  for (const apiKey of ["tlt_secret\n", "tlt_secret tlt_secret", "tlt_s\u00e9cret", () => "tlt_secret\n"]) {
    const server = new ScriptedServer();
    await assert.rejects(
      server.client({ apiKey }).models(),
      (problem) => problem instanceof errors.InvalidInput && !/cret/.test(problem.message),
    );
    server.done();
  }
});

test("an address that is none is refused at once, and not repeated", () => {
  for (const address of ["127.0.0.1:8383", "ftp://server.test", "http://ann:secret@server.test", "http://", "http://a b"]) {
    assert.throws(
      () => new Client(address),
      (problem) => problem instanceof errors.InvalidInput && !/secret/.test(problem.message),
    );
  }
  for (const address of ["", "/below", "https://server.test/below/", "http://[::1]:8383"]) {
    assert.equal(new Client(address).baseUrl, address.replace(/\/$/, ""));
  }
});

test("what stands between is no server, whatever its status", async () => {
  const page = { headers: { "content-type": "text/html" }, pieces: ["<p>Log in</p>"] };
  for (const verb of ["models", "events"] as const) {
    const server = new ScriptedServer(page);
    const client = server.client();
    await assert.rejects(verb === "models" ? client.models() : client.events().next(), { code: "request_failed" });
    server.done();
  }
  for (const body of ["null", "7", '{"error":{"code":502}}', '{"error":"Bad Gateway"}']) {
    const server = new ScriptedServer({ status: 502, pieces: [body] }, json({ data: [] }));
    assert.deepEqual(await server.client().models(), []);
    server.done();
  }
});

test("a server that says that it did nothing is asked again for what is told once", async () => {
  const server = new ScriptedServer(error(503, "shutting_down"), json({ id: "tok_1", token: "tlt_1" }));
  assert.equal((await server.client().tokens.create({ scopes: [] })).token, "tlt_1");
  server.done();
});

test("options that are undefined are left out, and a silence may be endless", async () => {
  const server = new ScriptedServer(REFUSED, info);
  const options = { random: undefined, retries: { times: undefined, firstPause: undefined } } as unknown as ClientOptions;
  await server.client(options).chats.open(CHAT).info();
  assert.deepEqual(server.pauses.length, 1);
  assert(server.pauses[0]! >= 50);
  const fetch = async (): Promise<Response> => {
    await new Promise((resolve) => setTimeout(resolve, 5));
    return Response.json({ data: [] });
  };
  const patient = new Client("https://server.test", { fetch, timeouts: { silence: Infinity }, retries: { times: 0 } });
  assert.deepEqual(await patient.models(), []);
});

test("nobody is sent away for longer than a day", async () => {
  for (const long of ["1e30", "Infinity"]) {
    const sent = new ScriptedServer(error(503, "shutting_down", { "retry-after": long }));
    await assert.rejects(chatOf(sent).info(), { retryAfter: 86_400_000 });
  }
});

test("whether there is a server is told whenever that changes", async () => {
  const errorIn: (boolean | string)[] = [];
  const server = new ScriptedServer(
    info,
    REFUSED,
    error(503, "shutting_down"),
    error(429, "server_busy"),
    { pieces: ['{"id":'], ending: "cut" },
    { pieces: ["<p>"], status: 502, headers: { "content-type": "text/html" } },
    info,
    { pieces: ['{"id":'], ending: "silence" },
    error(404, "conversation_not_found"),
  );
  const onConnection = (isLost: boolean): number => errorIn.push(isLost);
  const chat = chatOf(server, { onConnection });
  for (const call of ["first", "second", "third"]) {
    errorIn.push(call);
    await chat.info().catch(() => errorIn.push("refused"));
  }
  const ended = chat.info({ signal: AbortSignal.abort() });
  await assert.rejects(ended);
  assert.deepEqual(errorIn, ["first", "second", true, false, true, false, "third", true, false, "refused"]);
  server.done();
});
