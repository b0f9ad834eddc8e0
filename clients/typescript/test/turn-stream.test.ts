/** What a requested turn offers: its answer, a stop, a pause. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors, textOf, type TurnEvent } from "../src/index.js";
import { chatOf, READ, requestsOf, SENT, short, WHOLE } from "./scripted-chat.js";
import {
  all,
  CHAT,
  error,
  events,
  failed,
  json,
  REFUSED,
  ScriptedServer,
  committed,
  STARTED,
  TURN,
} from "./scripted-server.js";

test("an answer that no longer exists raises TurnFailed", async () => {
  const gone = json({ turn: null, state: "completed", failure: null, chat: {}, branch: null });
  await assert.rejects(chatOf(new ScriptedServer(events(WHOLE), gone)).send("Hi"), errors.TurnFailed);
});

test("an answer that cannot be read raises an error with its key", async () => {
  const server = new ScriptedServer(events(WHOLE), REFUSED);
  const sending = chatOf(server, { retries: { times: 0 } }).send("Hi", { idempotencyKey: "k" });
  await assert.rejects(sending, { name: "ServerUnavailable", idempotencyKey: "k" });
});

test("the text of an answer is that of its assistant messages", () => {
  const items = [
    { type: "reasoning", role: "assistant", content: "Hm." },
    { type: "message", role: "user", content: "Not I." },
    { type: "message", role: "assistant", content: "Plain. " },
    { type: "message", role: "assistant", content: [{ type: "output_text", text: "Part. " }, { type: "image" }] },
    { type: "message", role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
    { type: "message", role: "assistant" },
  ];
  assert.equal(textOf(items), "Plain. Part. No.");
});

test("a caller that may not read turns receives the answer by repeating its request", async () => {
  const server = new ScriptedServer(events(WHOLE), error(403, "missing_scope"), committed("Hello"));
  assert.equal((await chatOf(server).send("Hi")).text, "Hello");
  const [first, , last] = server.requests;
  assert.deepEqual(last, { ...first, body: { ...first?.body, stream: false } });
  server.done();
});

test("an answer can be awaited before all events are read", async () => {
  const server = new ScriptedServer(
    events(WHOLE.slice(0, 2), "silence"),
    events(WHOLE.slice(2), "end", 3),
    committed("Hello"),
  );
  const stream = chatOf(server).send("Hi", { stream: true });
  for await (const event of stream) if (event.type === "text.delta") break;
  assert.equal((await stream.answer()).text, "Hello");
  assert.deepEqual(requestsOf(server), [SENT, READ(2), `GET /api/turns/${TURN}`]);
});

test("a stop waits for the id of its turn", async () => {
  const stopped = { pieces: ['{"state":"kept","committed":true,"failure":null}'] };
  const server = new ScriptedServer(events([STARTED], "silence"), stopped);
  const stream = chatOf(server).send("Hi", { stream: true });
  assert.equal(stream.turnId, null);
  assert.deepEqual(await stream.stop({ policy: "keep" }), { state: "kept", committed: true, failure: null });
  assert.deepEqual(server.requests[1]?.path, `/api/turns/${TURN}/stop`);
  assert.deepEqual(server.requests[1]?.body, { policy: "keep" });
  stream.close();
});

test("a stop of a refused turn returns null", async () => {
  const server = new ScriptedServer(error(409, "conversation_busy", { "x-should-retry": "false" }));
  const stream = chatOf(server).send("Hi", { stream: true, onBusy: "reject" });
  assert.equal(await stream.stop(), null);
  await assert.rejects(all(stream), errors.ConversationBusy);
  server.done();
});

test("a stop of an idle chat stops the turn that this client has requested there, once it begins", async () => {
  const ended = { state: "discarded", committed: false, failure: null };
  let begin = (): void => {};
  const waits: Promise<string>[] = [new Promise((resolve) => (begin = () => resolve("tlt_1")))];
  const nothing = { ...json({ ...ended, state: null }), meanwhile: () => begin() };
  const server = new ScriptedServer(nothing, events([STARTED], "silence"), json(ended));
  const chat = chatOf(server, { apiKey: () => waits.shift() ?? "tlt_1" });
  const stream = chat.send("Hi", { stream: true });
  await new Promise((resolve) => setTimeout(resolve)); // it waits for its token
  assert.deepEqual(await chat.stop({ policy: "discard" }), ended);
  assert.deepEqual(requestsOf(server), [`POST /api/chats/${CHAT}/stop`, SENT, `POST /api/turns/${TURN}/stop`]);
  stream.close();
});

test("an abort ends a turn with its reason while it reads and while it pauses", async () => {
  const reading = new AbortController();
  const server = new ScriptedServer(events([STARTED], "silence"));
  await assert.rejects(
    async () => {
      for await (const _ of chatOf(server).send("Hi", { stream: true, signal: reading.signal }))
        reading.abort("enough");
    },
    (problem) => problem === "enough",
  );
  server.done();
  const pausing = new AbortController();
  const away = new ScriptedServer(REFUSED);
  const timer = (milliseconds: number): (() => void) => {
    if (milliseconds < 1000) pausing.abort("enough");
    return () => {};
  };
  const sending = chatOf(away, { timer }).send("Hi", { signal: pausing.signal });
  await assert.rejects(sending, (problem) => problem === "enough");
});

test("closing a stream ends a pending read", async () => {
  const server = new ScriptedServer(events([STARTED], "silence"));
  const stream = chatOf(server).send("Hi", { stream: true });
  await stream.next();
  const next = stream.next();
  stream.close();
  assert.deepEqual(await next, { done: true, value: undefined });
  server.done();
});

test("a turn whose first response was lost does not count as replayed", async () => {
  const replayed = events(WHOLE);
  replayed.headers!["idempotency-replayed"] = "true";
  const server = new ScriptedServer({ pieces: [], ending: "cut", status: 502 }, replayed, committed("Hello"));
  assert.equal((await chatOf(server).send("Hi")).isReplayed, false);
  server.done();
});

/** Check that the work goes on until the abort, and then rejects with its reason. */
async function endsWith(signal: AbortController, doing: Promise<unknown>): Promise<void> {
  let isOver = false;
  doing.then(
    () => (isOver = true),
    () => (isOver = true),
  );
  await new Promise((resolve) => setTimeout(resolve));
  assert(!isOver);
  signal.abort("enough");
  const late = new Promise((_, reject) => setTimeout(() => reject("the abort had no effect"), 20));
  await assert.rejects(Promise.race([doing, late]), (problem) => problem === "enough");
}

test("an abort ends a turn that waits for a token or the name of the model", async () => {
  const never = new Promise<string>(() => {});
  const [token, model] = [new AbortController(), new AbortController()];
  const server = new ScriptedServer({ pieces: [], ending: "silence" });
  await endsWith(token, chatOf(server, { apiKey: () => never }).send("Hi", { signal: token.signal }));
  assert.equal(server.requests.length, 0);
  const client = chatOf(server, { model: undefined, timer: () => () => {} });
  await endsWith(model, client.send("Hi", { signal: model.signal }));
});

test("an abort ends the read of an answer, and a stop that waits for its turn", async () => {
  const timer = (): (() => void) => () => {};
  const [reading, stopping] = [new AbortController(), new AbortController()];
  const server = new ScriptedServer(events(WHOLE), { pieces: [], ending: "silence" });
  await endsWith(reading, chatOf(server, { timer }).send("Hi", { signal: reading.signal }));
  const stream = chatOf(new ScriptedServer(), { apiKey: () => new Promise(() => {}) }).send("Hi", { stream: true });
  await endsWith(stopping, stream.stop({ signal: stopping.signal }));
  stream.close();
});

test("a paused stream closes its connection, and continues where it was", async () => {
  const server = new ScriptedServer(events(WHOLE.slice(0, 2), "silence"), events(WHOLE.slice(2), "end", 3));
  const stream = chatOf(server).send("Hi", { stream: true, idempotencyKey: "k" });
  const yielded = [(await stream.next()).value, (await stream.next()).value];
  stream.pause();
  server.isAtRest();
  const next = stream.next();
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(server.requests.length, 1);
  stream.resume();
  yielded.push((await next).value, ...(await all(stream)));
  assert.deepEqual(
    yielded.map((event) => short(event as TurnEvent)),
    ["1 started", "2 Hel", "3 lo", "4 finished"],
  );
  assert.deepEqual([requestsOf(server), server.pauses], [[SENT, READ(2)], []]);
  server.done();
});

test("a turn that is paused before it begins is requested, and read once it is resumed", async () => {
  const server = new ScriptedServer(REFUSED, events(WHOLE, "silence"), events(WHOLE));
  const stream = chatOf(server).send("Hi", { stream: true, idempotencyKey: "k" });
  stream.pause();
  assert.equal(await stream.begun, TURN);
  await new Promise((resolve) => setTimeout(resolve));
  server.isAtRest();
  stream.resume();
  stream.pause();
  stream.resume();
  assert.equal((await all(stream)).length, 4);
  assert.deepEqual(requestsOf(server), [SENT, SENT, READ(0)]);
  server.done();
});

test("a paused reader of events can be closed and aborted", async () => {
  const server = new ScriptedServer(events(WHOLE));
  const stream = chatOf(server).events(TURN);
  await stream.next();
  stream.pause();
  const controller = new AbortController();
  const other = chatOf(server).events(TURN, { signal: controller.signal });
  other.pause();
  const [next, ended] = [stream.next(), other.next()];
  stream.close();
  controller.abort(new Error("enough"));
  assert.equal((await next).done, true);
  await assert.rejects(ended, /enough/);
});

test("a paused stream throws a failure that it has received", async () => {
  const server = new ScriptedServer(events([STARTED, failed("model_unavailable")]));
  const stream = chatOf(server).send("Hi", { stream: true });
  await stream.next();
  await stream.next();
  stream.pause();
  await assert.rejects(stream.next(), errors.ModelUnavailable);
  server.done();
});

test("a turn that never began has no id", async () => {
  const server = new ScriptedServer(error(404, "conversation_not_found"));
  const stream = chatOf(server).send("Hi", { stream: true });
  await assert.rejects(all(stream), errors.ConversationNotFound);
  assert.equal(await stream.begun, null);
});
