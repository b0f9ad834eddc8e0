/** The list of chats, their changes, and the other requests of a client. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors, type Change } from "../src/index.js";
import { all, CHAT, CHAT_INFO, error, json, REFUSED, ScriptedServer, type Scripted } from "./scripted-server.js";

const sentEvent = (id: string, event: object): string => `id: ${id}\nevent: e\ndata: ${JSON.stringify(event)}\n\n`;
const SHARE = "share_01a1e29c3b7e74b1824da121735f1ddd";

test("a list is read page by page, with the same filters", async () => {
  const page = (id: string, next: string | null): Scripted => json({ data: [{ ...CHAT_INFO, id }], next, as_of: "p" });
  const server = new ScriptedServer(page("1", "c"), page("2", null));
  const listed = server.client().chats.list({ scope: "s", tag: "t", pinned: true, archived: null, deleted: true });
  assert.deepEqual(
    (await listed.all()).map((chat) => chat.id),
    ["1", "2"],
  );
  assert.deepEqual(
    server.requests.map((each) => each.path),
    [
      "/api/chats?scope=s&tag=t&archived=any&pinned=true&deleted=true",
      "/api/chats?scope=s&tag=t&archived=any&pinned=true&deleted=true&cursor=c",
    ],
  );
  const limited = new ScriptedServer(page("1", "c"));
  const pages = await all(limited.client().chats.list({ limit: 1 }).pages());
  assert.deepEqual([pages.length, pages[0]?.asOf], [1, "p"]);
  assert.equal(limited.only.path, "/api/chats?archived=false&pinned=any&limit=1");
});

test("changes continue after a lost connection from the last received position", async () => {
  const server = new ScriptedServer(
    { pieces: [sentEvent("p1", { type: "start", at: 1 }), ": \nid: p2\n\n"], ending: "cut" },
    REFUSED,
    {
      pieces: [sentEvent("p3", { type: "chat.deleted", at: 2, chat: CHAT, scope: null, reason: "deleted" })],
      ending: "silence",
    },
    { pieces: ['event: error\ndata: {"error":{"type":"server_error","code":"shutting_down","message":"m"}}\n\n'] },
    { pieces: [] },
    { pieces: [sentEvent("p4", { type: "gap", at: 3 })] },
  );
  const changes: Change[] = [];
  for await (const change of server.client({ retries: { times: 0 } }).events({ after: "p0" })) {
    changes.push(change);
    if (change.type === "gap") break;
  }
  assert.deepEqual(
    changes.map((change) => [change.type, change.position]),
    [
      ["start", "p1"],
      ["chat.deleted", "p3"],
      ["gap", "p4"],
    ],
  );
  assert.deepEqual(
    server.requests.map((each) => each.headers["last-event-id"]),
    ["p0", "p2", "p2", "p3", "p3", "p3"],
  );
  assert.deepEqual(server.pauses, [100, 200, 100, 200, 400]);
  server.done();
});

test("changes end with an error for a revoked caller", async () => {
  const server = new ScriptedServer(error(401, "invalid_token"));
  await assert.rejects(all(server.client().events()), errors.NotAdmitted);
});

test("changes are requested before the first one is awaited", async () => {
  const server = new ScriptedServer({ pieces: [sentEvent("p1", { type: "start", at: 1 })], ending: "silence" });
  const changes = server.client().events();
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(server.only.path, "/api/events");
  changes.close();
  server.done();
});

test("closing the changes ends a pending read", async () => {
  const server = new ScriptedServer({ pieces: [sentEvent("p1", { type: "start", at: 1 })], ending: "silence" });
  const changes = server.client().events();
  assert.equal((await changes.next()).value?.type, "start");
  const next = changes.next();
  changes.close();
  assert.equal((await next).done, true);
  assert.equal((await changes.next()).done, true);
  server.done();
});

test("the HTML page of a proxy is not an export", async () => {
  const page = new ScriptedServer({ headers: { "content-type": "text/html" }, pieces: ["<p>Log in</p>\n"] });
  await assert.rejects(all(page.client().export()), { code: "request_failed" });
});

test("exports and imports are read by lines, and an import that is cut off is repeated", async () => {
  const headers = { "content-type": "application/x-ndjson" };
  const out = new ScriptedServer({ headers, pieces: ['{"a":1}\n{"b":2}\n'] });
  assert.deepEqual(await all(out.client().export({ scope: "s" })), ['{"a":1}', '{"b":2}']);
  assert.equal(out.only.path, "/api/export?scope=s");
  const report = '{"line":1,"did":"imported","chat":"c","turns":2,"why":""}\n';
  const cut: Scripted = { pieces: [report], ending: "cut" };
  const server = new ScriptedServer(cut, { pieces: [report, '{"done":{"imported":1}}\n'] });
  const reports = await server.client().importChats(["a", "b"]);
  assert.deepEqual(reports, [{ line: 1, did: "imported", chat: "c", turns: 2, why: "" }]);
  assert.deepEqual([server.requests[1]?.body, server.requests[1]?.headers["content-type"]], ["a\nb", "application/x-ndjson"]);
  const failing = new ScriptedServer({
    pieces: [report, '{"error":{"message":"m","type":"invalid_request_error","code":"storage_full"}}\n'],
  });
  await assert.rejects(failing.client().importChats("a"), errors.StorageFull);
});

test("a caller's own token says whether its chats are kept, overall or in a scope", async () => {
  const server = new ScriptedServer(...Array(2).fill(json({ owner: "ann", scopes: [], chat_scope: "s", keeps: false })));
  const own = await server.client().tokens.own();
  assert.deepEqual([own.owner, own.chatScope, own.keeps], ["ann", "s", false]);
  await server.client().tokens.own({ scope: "a b" });
  assert.deepEqual(server.requests.map((each) => each.path), ["/api/tokens/self", "/api/tokens/self?scope=a+b"]);
});

test("tokens and links are listed page by page, after the last id", async () => {
  const tokens = Array.from({ length: 100 }, (_, place) => ({ id: `tok_${place}`, chat_scope: "s" }));
  const server = new ScriptedServer(json({ data: tokens }), json({ data: [{ id: "tok_last" }] }));
  const listed = await server.client().tokens.list({ owner: "ann" }).all();
  assert.deepEqual([listed.length, listed[0]?.chatScope], [101, "s"]);
  assert.equal(server.requests[1]?.path, "/api/tokens?owner=ann&before=tok_99&limit=100");
  const one = new ScriptedServer(json({ data: [tokens[0]] }));
  assert.equal((await one.client().shares.list({ limit: 1 }).all()).length, 1);
  assert.equal(one.only.path, "/api/shares?limit=1");
});

test("an exchange of a link is repeated with the same nonce; tokens and links are revoked by their ids", async () => {
  const server = new ScriptedServer(REFUSED, json({ token: "tlt_1", expires_at: null }));
  assert.equal((await server.client().shares.exchange("tls_1")).token, "tlt_1");
  assert.deepEqual(server.requests[0]?.body, server.requests[1]?.body);
  assert.match(server.requests[0]?.body.nonce, /^\d+(-\d+){3}$/);
  const revoking = new ScriptedServer(json({ data: [{ id: "tok_1" }] }), json({ id: SHARE }));
  await revoking.client().tokens.revoke("self");
  await revoking.client().shares.revoke(SHARE);
  assert.deepEqual(
    revoking.requests.map((each) => each.path),
    ["/api/tokens/self", `/api/shares/${SHARE}`],
  );
});

test("changes raise ServerUnavailable if the server never answered", async () => {
  const server = new ScriptedServer(REFUSED, REFUSED);
  await assert.rejects(all(server.client({ retries: { times: 1 } }).events()), errors.ServerUnavailable);
  server.done();
});

test("reconnect resumes a quiet stream, and ends a pause at once", async () => {
  const server = new ScriptedServer(
    { pieces: [sentEvent("p1", { type: "start", at: 1 })], ending: "quiet" },
    REFUSED,
    { pieces: [sentEvent("p2", { type: "gap", at: 3 })], ending: "quiet" },
  );
  let isPaused = (): void => {};
  const pausing = new Promise<void>((resolve) => (isPaused = resolve));
  const timer = (milliseconds: number): (() => void) => {
    if (milliseconds < 1_000) isPaused();
    return () => {}; // and it never ends
  };
  const client = server.client({ timer });
  const changes = client.events();
  await changes.next();
  const next = changes.next();
  client.reconnect();
  await pausing;
  await new Promise((resolve) => setTimeout(resolve));
  client.reconnect();
  assert.equal(server.requests.length, 1);
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(server.requests.length, 2);
  client.reconnect();
  assert.equal((await next).value?.type, "gap");
  assert.equal(server.requests[2]?.headers["last-event-id"], "p1");
  changes.close();
  server.done();
});
