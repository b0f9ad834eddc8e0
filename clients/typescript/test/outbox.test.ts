/** A message is stored before it is sent, and answered once, even if the program crashes. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors } from "../src/index.js";
import { Outbox, type OutboxStorage } from "../src/outbox.js";
import {
  CHAT,
  error,
  events,
  failed,
  finished,
  REFUSED,
  ScriptedServer,
  committed,
  STARTED,
  text,
  type Scripted,
} from "./scripted-server.js";
import { chatOf } from "./scripted-chat.js";

class Memory implements OutboxStorage {
  readonly kept = new Map<string, string>();
  room = Infinity;
  get length(): number {
    return this.kept.size;
  }
  key(place: number): string | null {
    return [...this.kept.keys()][place] ?? null;
  }
  getItem(name: string): string | null {
    return this.kept.get(name) ?? null;
  }
  setItem(name: string, value: string): void {
    if (this.kept.size >= this.room) throw new Error("QuotaExceededError");
    this.kept.set(name, value);
  }
  removeItem(name: string): void {
    this.kept.delete(name);
  }
}

const ONCE = { retries: { times: 0 } };
const whole = (): Scripted => events([STARTED, text("Hello"), finished()]);

test("a message is stored before it is sent, and removed once its outcome is known", async () => {
  const storage = new Memory();
  const outbox = new Outbox(storage, "ann", { now: () => 7 });
  let pending = 0;
  const server = new ScriptedServer(
    { ...whole(), meanwhile: () => (pending = outbox.pending().length) },
    committed("Hello"),
  );
  await chatOf(server, { outbox, apiKey: "tlt_secret" }).send("Hi", { idempotencyKey: "k", onBusy: "reject" });
  assert.equal(pending, 1);
  assert.equal(storage.length, 0);
});

test("a message that the server refused for good is removed, and one without a final answer stays", async () => {
  for (const [script, left] of [
    [error(409, "conversation_busy"), 0],
    [events([STARTED, failed("model_unavailable")]), 0],
    [REFUSED, 1],
    [error(401, "token_expired"), 1],
    [error(403, "outside_models"), 1],
    [error(503, "shutting_down"), 1],
    [events([STARTED], "cut"), 1],
    [error(401, "invalid_token"), 1],
    [error(401, "token_ended"), 1],
    [{ headers: { "content-type": "text/html" }, pieces: ["<p>Log in</p>"] }, 1],
    [{ status: 302, pieces: [] }, 1],
  ] as const) {
    const outbox = new Outbox(new Memory(), "ann");
    const client = new ScriptedServer(script).client({ outbox, ...ONCE });
    await assert.rejects(client.chats.open(CHAT).send("Hi"), errors.TurnledgerError);
    assert.equal(outbox.pending().length, left);
  }
});

test("a message whose token expired during the answer stays", async () => {
  const errorEvent = 'event: error\ndata: {"error":{"type":"invalid_request_error","code":"token_expired","message":"m"}}\n\n';
  const outbox = new Outbox(new Memory(), "ann");
  const shown = { ...events([STARTED]), pieces: [errorEvent] };
  const client = new ScriptedServer(shown, error(401, "token_expired")).client({ outbox });
  await assert.rejects(client.chats.open(CHAT).send("Hi"), errors.NotAdmitted);
  assert.equal(outbox.pending().length, 1);
});

test("another program resends the same bytes under the same key, and no token is stored", async () => {
  const storage = new Memory();
  const before = new ScriptedServer(REFUSED);
  const client = before.client({ outbox: new Outbox(storage, "ann"), apiKey: "tlt_secret", ...ONCE });
  await assert.rejects(client.chats.open(CHAT).send("Hi", { onStop: "discard" }), errors.ServerUnavailable);
  assert(!JSON.stringify([...storage.kept]).includes("secret"));
  const outbox = new Outbox(storage, "ann");
  const after = new ScriptedServer(whole(), committed("Hello"));
  const [sent, ...others] = await outbox.sendAll(after.client({ outbox, model: "another", apiKey: "tlt_secret" }));
  assert.deepEqual([sent?.answer?.text, sent?.error, others], ["Hello", undefined, []]);
  assert.deepEqual(after.requests[0], before.requests[0]);
  assert.equal(storage.length, 0);
});

test("messages are resent in order, up to one that reaches no server", async () => {
  const storage = new Memory();
  let now = 0;
  const outbox = new Outbox(storage, "ann", { now: () => now });
  for (const key of ["b", "a", "c"]) {
    now += 1;
    outbox.record({ idempotencyKey: key, baseUrl: "https://server.test", body: '{"stream":true}', headers: {} });
  }
  const server = new ScriptedServer(whole(), committed("Hello"), REFUSED);
  const sent = await outbox.sendAll(server.client({ outbox, ...ONCE }));
  assert.deepEqual(
    sent.map((each) => [each.unsent.idempotencyKey, each.error?.name]),
    [
      ["b", undefined],
      ["a", "ServerUnavailable"],
    ],
  );
  assert.deepEqual(
    outbox.pending().map((each) => each.idempotencyKey),
    ["a", "c"],
  );
});

/** An outbox with messages for chats, the names of which are their keys, with a number each. */
function holding(...keys: string[]): Outbox {
  const outbox = new Outbox(new Memory(), "ann", { now: () => 7 });
  for (const key of keys) {
    const body = JSON.stringify({ conversation_key: key[0], stream: true });
    outbox.record({ idempotencyKey: key, baseUrl: "https://server.test", body, headers: {} });
  }
  return outbox;
}

const keysOf = (all: readonly { idempotencyKey: string }[]): string[] => all.map((each) => each.idempotencyKey);

test("a message that stays holds back the later ones of its chat only", async () => {
  const outbox = holding("b1", "a1", "b2", "a2");
  const server = new ScriptedServer(error(429, "queue_full"), whole(), committed("Hello"), whole(), committed("Hello"));
  const sent = await outbox.sendAll(server.client({ outbox, ...ONCE }));
  assert.deepEqual(keysOf(sent.map((each) => each.unsent)), ["b1", "a1", "a2"]);
  assert.deepEqual(keysOf(outbox.pending()), ["b1", "b2"]);
});

test("a forbidden message holds back its chat only, and an expired token all later messages", async () => {
  const outbox = holding("b1", "a1", "b2", "c1", "d1");
  const script = [error(403, "outside_models"), whole(), committed("Hello"), error(401, "token_expired")];
  const sent = await outbox.sendAll(new ScriptedServer(...script).client({ outbox, ...ONCE }));
  assert.deepEqual(keysOf(sent.map((each) => each.unsent)), ["b1", "a1", "c1"]);
  assert.deepEqual(keysOf(outbox.pending()), ["b1", "b2", "c1", "d1"]);
});

test("a message that is too old for its key is not resent, and its outcome is unknown", async () => {
  let now = 0;
  const outbox = new Outbox(new Memory(), "ann", { now: () => now, safeFor: 10 });
  const unsent = { idempotencyKey: "k", baseUrl: "https://server.test", body: "{}", headers: {} };
  outbox.record(unsent);
  now = 11;
  outbox.record(unsent); // which makes it no younger
  const [sent] = await outbox.sendAll(new ScriptedServer().client({ outbox }));
  assert(sent?.error instanceof errors.OutcomeUnknown);
  assert.equal(outbox.pending().length, 1);
  outbox.forget("k");
  assert.equal(outbox.pending().length, 0);
});

test("messages of other owners and for other servers are neither sent nor removed", async () => {
  const storage = new Memory();
  const unsent = { idempotencyKey: "k", body: "{}", headers: {} };
  new Outbox(storage, "ben").record({ ...unsent, baseUrl: "https://server.test" });
  const outbox = new Outbox(storage, "ann");
  outbox.record({ ...unsent, baseUrl: "http://elsewhere.test" });
  assert.deepEqual(await outbox.sendAll(new ScriptedServer().client({ outbox })), []);
  assert.equal(outbox.pending().length, 1);
  assert.equal(storage.length, 2);
});

test("a message that cannot be stored is not sent", async () => {
  const full = new Memory();
  full.room = 0;
  const server = new ScriptedServer();
  const chat = server.client({ outbox: new Outbox(full, "ann") }).chats.open(CHAT);
  await assert.rejects(chat.send("Hi"), errors.StoreFull);
  const none = server.client({ outbox: new Outbox(new Memory(), "ann", { maxMessages: 0 }) }).chats.open(CHAT);
  await assert.rejects(none.send("Hi"), errors.StoreFull);
  assert.deepEqual(server.requests, []);
});

test("messages without a chat do not overtake one that stays", async () => {
  for (const script of [error(429, "queue_full"), error(503, "store_unavailable"), error(401, "token_ended")]) {
    const outbox = new Outbox(new Memory(), "ann", { now: () => 7 });
    for (const key of ["b", "a"]) {
      outbox.record({ idempotencyKey: key, baseUrl: "https://server.test", body: '{"stream":true}', headers: {} });
    }
    const server = new ScriptedServer(script);
    const sent = await outbox.sendAll(server.client({ outbox, ...ONCE }));
    server.done();
    assert.deepEqual([sent.length, outbox.pending().length], [1, 2]);
  }
});

test("messages of one millisecond keep their order in any order of the storage", () => {
  const storage = new Memory();
  const outbox = new Outbox(storage, "ann", { now: () => 7 });
  const keys = ["c", "a", "b"];
  for (const idempotencyKey of keys) outbox.record({ idempotencyKey, baseUrl: "", body: "{}", headers: {} });
  storage.key = (place) => [...storage.kept.keys()].sort()[place] ?? null;
  assert.deepEqual(
    outbox.pending().map((each) => each.idempotencyKey),
    keys,
  );
});

test("a storage that throws raises StoreError, and foreign entries are skipped", async () => {
  const storage = new Memory();
  storage.kept.set("turnledger:ann:broken", '{"idem');
  storage.kept.set("turnledger:ann:null", "null");
  assert.deepEqual(new Outbox(storage, "ann").pending(), []);
  storage.getItem = () => {
    throw new Error("SecurityError");
  };
  const server = new ScriptedServer();
  const chat = server.client({ outbox: new Outbox(storage, "ann") }).chats.open(CHAT);
  await assert.rejects(chat.send("Hi"), errors.StoreError);
  server.done();
});

test("a message stays after a 401, a 403 and the response of a proxy, and not after a conflict", async () => {
  for (const answer of [
    error(401, "token_expired"),
    error(403, "not_allowed"),
    { status: 302, headers: { location: "http://portal.test" } },
    { status: 407, pieces: ["<html>"] },
    { status: 200, headers: { "content-type": "text/html" }, pieces: ["<html>"] },
  ]) {
    const outbox = new Outbox(new Memory(), "ann");
    const server = new ScriptedServer(answer);
    await assert.rejects(chatOf(server, { ...ONCE, outbox }).send("Hi"), errors.RequestFailed);
    assert.equal(outbox.pending().length, 1, JSON.stringify(answer));
  }
  const outbox = new Outbox(new Memory(), "ann");
  const server = new ScriptedServer(error(409, "conversation_busy"));
  await assert.rejects(chatOf(server, { ...ONCE, outbox }).send("Hi"), errors.ConversationBusy);
  assert.equal(outbox.pending().length, 0);
});
