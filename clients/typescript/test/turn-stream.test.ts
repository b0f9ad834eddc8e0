/** What a turn that was asked for can be asked: for its answer, to stop, to be read no more. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors, textOf, type TurnEvent } from "../src/index.js";
import { ASKED, asked, chatOf, READ, short, WHOLE } from "./following.js";
import {
  all,
  CHAT,
  error,
  events,
  failed,
  json,
  REFUSED,
  ScriptedServer,
  standing,
  STARTED,
  TURN,
} from "./scripted-server.js";

test("an answer that is there no more is an error of the tree", async () => {
  const gone = json({ turn: null, state: "completed", failure: null, chat: {}, branch: null });
  await assert.rejects(chatOf(new ScriptedServer(events(WHOLE), gone)).send("Hi"), errors.TurnFailed);
});

test("an answer that cannot be read says under which key it is told again", async () => {
  const server = new ScriptedServer(events(WHOLE), REFUSED);
  const sending = chatOf(server, { retries: { times: 0 } }).send("Hi", { idempotencyKey: "k" });
  await assert.rejects(sending, { name: "ServerUnavailable", idempotencyKey: "k" });
});

test("the text of an answer is what the assistant says in it", () => {
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

test("who may run turns but not read them is told the answer to what was asked", async () => {
  const server = new ScriptedServer(events(WHOLE), error(403, "missing_scope"), standing("Hello"));
  assert.equal((await chatOf(server).send("Hi")).text, "Hello");
  const [first, , last] = server.heard;
  assert.deepEqual(last, { ...first, body: { ...first?.body, stream: false } });
  server.done();
});

test("an answer can be had though its events were not read to the end", async () => {
  const server = new ScriptedServer(
    events(WHOLE.slice(0, 2), "silence"),
    events(WHOLE.slice(2), "end", 3),
    standing("Hello"),
  );
  const stream = chatOf(server).send("Hi", { stream: true });
  for await (const event of stream) if (event.type === "text.delta") break;
  assert.equal((await stream.answer()).text, "Hello");
  assert.deepEqual(asked(server), [ASKED, READ(2), `GET /api/turns/${TURN}`]);
});

test("a stop waits until the turn is known, then names it", async () => {
  const stopped = { pieces: ['{"state":"kept","committed":true,"failure":null}'] };
  const server = new ScriptedServer(events([STARTED], "silence"), stopped);
  const stream = chatOf(server).send("Hi", { stream: true });
  assert.equal(stream.turnId, null);
  assert.deepEqual(await stream.stop({ policy: "keep" }), { state: "kept", committed: true, failure: null });
  assert.deepEqual(server.heard[1]?.path, `/api/turns/${TURN}/stop`);
  assert.deepEqual(server.heard[1]?.body, { policy: "keep" });
  stream.close();
});

test("a stop of a turn that never came to be stops nothing", async () => {
  const server = new ScriptedServer(error(409, "conversation_busy", { "x-should-retry": "false" }));
  const stream = chatOf(server).send("Hi", { stream: true, onBusy: "reject" });
  assert.equal(await stream.stop(), null);
  await assert.rejects(all(stream), errors.ConversationBusy);
  server.done();
});

test("a stop of a chat where nothing runs stops what was asked for there, once it begins", async () => {
  const ended = { state: "discarded", committed: false, failure: null };
  let begin = (): void => {};
  const waits: Promise<string>[] = [new Promise((resolve) => (begin = () => resolve("tlt_1")))];
  const nothing = { ...json({ ...ended, state: null }), meanwhile: () => begin() };
  const server = new ScriptedServer(nothing, events([STARTED], "silence"), json(ended));
  const chat = chatOf(server, { apiKey: () => waits.shift() ?? "tlt_1" });
  const stream = chat.send("Hi", { stream: true });
  await new Promise((resolve) => setTimeout(resolve)); // by now it has asked for its token, and waits for that
  assert.deepEqual(await chat.stop({ policy: "discard" }), ended);
  assert.deepEqual(asked(server), [`POST /api/chats/${CHAT}/stop`, ASKED, `POST /api/turns/${TURN}/stop`]);
  stream.close();
});

test("a signal ends it with its reason, while it reads and while it pauses", async () => {
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

test("a stream that is closed ends for who waits for its next event", async () => {
  const server = new ScriptedServer(events([STARTED], "silence"));
  const stream = chatOf(server).send("Hi", { stream: true });
  await stream.next();
  const next = stream.next();
  stream.close();
  assert.deepEqual(await next, { done: true, value: undefined });
  server.done();
});

test("a turn that was asked for here was not there before, though its first answer was lost", async () => {
  const replayed = events(WHOLE);
  replayed.headers!["idempotency-replayed"] = "true";
  const server = new ScriptedServer({ pieces: [], ending: "cut", status: 502 }, replayed, standing("Hello"));
  assert.equal((await chatOf(server).send("Hi")).isReplayed, false);
  server.done();
});

/** Reject with the reason of the signal, soon. */
async function endsWith(signal: AbortController, doing: Promise<unknown>): Promise<void> {
  let isOver = false;
  doing.then(
    () => (isOver = true),
    () => (isOver = true),
  );
  await new Promise((resolve) => setTimeout(resolve));
  assert(!isOver);
  signal.abort("enough");
  const late = new Promise((_, reject) => setTimeout(() => reject("the signal was not heard"), 20));
  await assert.rejects(Promise.race([doing, late]), (problem) => problem === "enough");
}

test("a signal ends it while a token or the name of the model is awaited", async () => {
  const never = new Promise<string>(() => {});
  const [token, model] = [new AbortController(), new AbortController()];
  const server = new ScriptedServer({ pieces: [], ending: "silence" });
  await endsWith(token, chatOf(server, { apiKey: () => never }).send("Hi", { signal: token.signal }));
  assert.equal(server.heard.length, 0);
  const client = chatOf(server, { model: undefined, timer: () => () => {} });
  await endsWith(model, client.send("Hi", { signal: model.signal }));
});

test("a signal ends it while the answer is read, and a stop while the turn waits", async () => {
  const timer = (): (() => void) => () => {};
  const [reading, stopping] = [new AbortController(), new AbortController()];
  const server = new ScriptedServer(events(WHOLE), { pieces: [], ending: "silence" });
  await endsWith(reading, chatOf(server, { timer }).send("Hi", { signal: reading.signal }));
  const stream = chatOf(new ScriptedServer(), { apiKey: () => new Promise(() => {}) }).send("Hi", { stream: true });
  await endsWith(stopping, stream.stop({ signal: stopping.signal }));
  stream.close();
});

test("a stream that is paused lets go of its connection, and goes on where it was", async () => {
  const server = new ScriptedServer(events(WHOLE.slice(0, 2), "silence"), events(WHOLE.slice(2), "end", 3));
  const stream = chatOf(server).send("Hi", { stream: true, idempotencyKey: "k" });
  const errorIn = [(await stream.next()).value, (await stream.next()).value];
  stream.pause();
  server.isAtRest();
  const next = stream.next();
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(server.heard.length, 1);
  stream.resume();
  errorIn.push((await next).value, ...(await all(stream)));
  assert.deepEqual(
    errorIn.map((event) => short(event as TurnEvent)),
    ["1 started", "2 Hel", "3 lo", "4 finished"],
  );
  assert.deepEqual([asked(server), server.pauses], [[ASKED, READ(2)], []]);
  server.done();
});

test("a turn that is paused before it has begun is asked for all the same, and read later", async () => {
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
  assert.deepEqual(asked(server), [ASKED, ASKED, READ(0)]);
  server.done();
});

test("what is only read can be paused, too, and be closed meanwhile", async () => {
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

test("a failure that was told is thrown, though the stream is paused", async () => {
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
