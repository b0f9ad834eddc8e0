/** A turn is followed to its end through any failure: each event once, in order. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors } from "../src/index.js";
import { chatOf, READ, received, requestsOf, SENT, short, WHOLE } from "./scripted-chat.js";
import {
  all,
  CHAT,
  error,
  events,
  failed,
  finished,
  OTHER_TURN,
  REFUSED,
  ScriptedServer,
  sent,
  committed,
  STARTED,
  text,
  TURN,
  type Scripted,
} from "./scripted-server.js";

test("a turn without failures takes one request", async () => {
  const server = new ScriptedServer(events(WHOLE));
  assert.deepEqual(await received(server), ALL);
  assert.deepEqual(server.only.body, { model: "demo", chat: CHAT, input: "Hi", stream: true });
  assert.equal(server.only.headers["idempotency-key"], "k");
});

for (const ending of ["cut", "silence"] as const) {
  for (const after of [1, 2, 3]) {
    test(`a stream that ends by ${ending} after ${after} events continues after the last one`, async () => {
      const server = new ScriptedServer(
        events(WHOLE.slice(0, after), ending),
        events(WHOLE.slice(after), "end", after + 1),
      );
      assert.deepEqual(await received(server), ALL);
      assert.deepEqual(requestsOf(server), [SENT, READ(after)]);
    });
  }
}

test("a stream cut within an event continues after the last whole one", async () => {
  const [first = "", second = ""] = events(WHOLE).pieces as string[];
  for (let place = 0; place < second.length; place++) {
    const broken = { ...events([]), pieces: [first, second.slice(0, place)], ending: "cut" } as const;
    const server = new ScriptedServer(broken, events(WHOLE.slice(1), "end", 2));
    assert.deepEqual(await received(server), ALL);
    assert.deepEqual(requestsOf(server), [SENT, READ(1)]);
  }
});

test("a request whose turn is not known is repeated unchanged, under the same key", async () => {
  const server = new ScriptedServer(
    REFUSED,
    error(503, "shutting_down"),
    { ...events([]), ending: "cut", status: 502 },
    events(WHOLE),
  );
  assert.deepEqual(await received(server), ALL);
  assert.deepEqual(requestsOf(server), [SENT, SENT, SENT, SENT]);
  assert.equal(new Set(server.requests.map((each) => JSON.stringify([each.headers, each.body]))).size, 1);
});

test("beforeRetry is awaited before a request is repeated, and not before its events are read", async () => {
  const server = new ScriptedServer(REFUSED, events(WHOLE.slice(0, 1), "cut"), events(WHOLE.slice(1), "end", 2));
  const sentBefore: number[] = [];
  const beforeRetry = async (): Promise<void> => void sentBefore.push(server.requests.length);
  const stream = chatOf(server).send("Hi", { stream: true, model: "demo", idempotencyKey: "k", beforeRetry });
  assert.deepEqual((await all(stream)).length, 4);
  assert.deepEqual([sentBefore, requestsOf(server)], [[1], [SENT, SENT, READ(1)]]);
});

test("a missing turn and a missing scope raise their errors", async () => {
  const editing = new ScriptedServer(error(404, "turn_not_found"));
  await assert.rejects(chatOf(editing).edit(TURN, "Hi"), errors.TurnNotFound);
  const reading = new ScriptedServer(error(404, "turn_not_found"));
  await assert.rejects(all(chatOf(reading).events(TURN)), errors.TurnNotFound);
  const barred = new ScriptedServer(error(403, "missing_scope"));
  await assert.rejects(chatOf(barred).send("Hi"), errors.NotAdmitted);
});

test("a server other than Turnledger is not asked twice", async () => {
  const server = new ScriptedServer({ headers: { "content-type": "text/html" }, pieces: ["<!doctype html>"] });
  await assert.rejects(received(server), { name: "RequestFailed" });
  assert.equal(server.requests.length, 1);
});

const ALL = ["1 started", "2 Hel", "3 lo", "4 finished"];
const RECEIVED = ALL.slice(0, 3);
const CUT = events(WHOLE.slice(0, 3), "cut");
const ANEW = events(WHOLE, "end", 1, OTHER_TURN);
const DIED = [STARTED, failed("process_died")];
const STAYS_DEAD = events(DIED);
const RESTARTED = ["restarted 1", "1 started", "2 finished"];
const LOST = error(404, "turn_not_found");
const inStream = (data: string, before: string[] = []): Scripted => ({
  ...events([]),
  pieces: [...before, `event: error\ndata: ${data}\n\n`],
});
const errorInStream = (code: string, type: string): string =>
  `{"error":{"message":"m","type":"${type}","param":null,"code":"${code}"}}`;

/** Check what is received of a turn through these responses, and the requests. */
function follows(name: string, script: Scripted[], expected: string[], requests: string[], isReader = false): void {
  test(name, async () => {
    const server = new ScriptedServer(...script);
    const chat = chatOf(server);
    const stream = isReader ? chat.events(TURN) : chat.send("Hi", { stream: true, idempotencyKey: "k" });
    assert.deepEqual((await all(stream)).map(short), expected);
    assert.deepEqual(requestsOf(server), requests);
    server.done();
  });
}

const gap = { ...events([]), pieces: [sent(2, text("Hel")), sent(4, finished())] };
const repeated = [events(WHOLE.slice(0, 1), "cut"), gap, events(WHOLE)];
follows("repeated events are dropped, and a gap breaks the stream", repeated, ALL, [SENT, READ(1), READ(2)]);
const whole = { "content-type": "text/event-stream", "x-conversation-id": CHAT, "x-turn-id": TURN };
for (const headers of [{}, { ...whole, "x-turn-id": TURN.slice(0, -1) }]) {
  const begun = { headers, pieces: [] };
  follows("a response with incomplete headers is requested again", [begun, events(WHOLE)], ALL, [SENT, SENT]);
}
for (const before of [WHOLE.slice(0, 2), []]) {
  follows("a stream that ends early is requested again", [events(before), events(WHOLE)], ALL, [SENT, SENT]);
}
const kept = [STARTED, text("He"), finished("kept")];
follows(
  "a turn that was kept shorter than received is yielded again from its start",
  [CUT, events(kept.slice(2), "end", 3), events(kept)],
  [...RECEIVED, "restarted 1", "1 started", "2 He", "3 finished"],
  [SENT, READ(3), SENT],
);
follows(
  "a turn that failed before the last received event is requested again",
  [CUT, events(DIED.slice(1), "end", 2), ANEW],
  [...RECEIVED, "restarted 2", ...ALL],
  [SENT, READ(3), SENT],
);
follows(
  "a turn that the store lost in a power failure is requested again",
  [events([STARTED], "cut"), LOST, ANEW],
  ["1 started", "restarted 2", ...ALL],
  [SENT, READ(1), SENT],
);
follows("an attempt without received events is repeated without a restart event", [events([], "cut"), LOST, ANEW], ALL, [
  SENT,
  READ(0),
  SENT,
]);
const moved = inStream(errorInStream("turn_moved", "server_error"), [": \n\n"]);
follows("a turn that moved to another request is requested again", [moved, LOST, ANEW], ALL, [SENT, READ(0), SENT]);
const unreadable = error(403, "missing_scope");
follows(
  "a caller that may not read turns repeats its request",
  [events([STARTED], "cut"), unreadable, events(WHOLE)],
  ALL,
  [SENT, READ(1), SENT],
);
const rest = events(WHOLE.slice(1), "end", 2);
const passing = ["oops", "null", '{"error":null}', '{"error":{"code":7,"type":"server_error"}}'];
for (const data of [errorInStream("shutting_down", "server_error"), ...passing]) {
  follows(`an error in the stream is temporary: ${data}`, [inStream(data, [sent(1, STARTED)]), rest], ALL, [SENT, READ(1)]);
}
const unnumbered = [sent(1, STARTED), 'id: x\ndata: {"type":"text.delta","text":"?"}\n\n'];
follows("an event without a number breaks the stream", [{ ...events([]), pieces: unnumbered }, rest], ALL, [SENT, SENT]);
follows(
  "a reader that received more than was kept reads the turn again",
  [CUT, events(DIED.slice(1), "end", 2), STAYS_DEAD],
  [...RECEIVED, ...RESTARTED],
  [READ(0), READ(3), READ(0)],
  true,
);
follows(
  "a reader that finds nothing after its last event reads the turn again",
  [CUT, events([]), STAYS_DEAD, STAYS_DEAD],
  [...RECEIVED, ...RESTARTED],
  [READ(0), READ(3), READ(0), READ(0)],
  true,
);
const some = WHOLE.slice(0, 2);
follows(
  "a reader that finds nothing new has received everything",
  [events(some, "cut"), events([]), events(some)],
  RECEIVED.slice(0, 2),
  [READ(0), READ(2), READ(0)],
  true,
);
follows("an empty stream of a withdrawn turn is read once more", [events([]), events([])], [], [READ(0), READ(0)], true);
follows("a stream that ends before its first event is read again", [events([]), events(WHOLE)], ALL, [READ(0), READ(0)], true);

test("a permanent error in the stream is thrown", async () => {
  for (const [code, type] of [
    ["wait_ended", "invalid_request_error"],
    ["token_ended", "invalid_request_error"],
    ["store_corrupt", "server_error"],
  ] as const) {
    const server = new ScriptedServer(inStream(errorInStream(code, type), [sent(1, STARTED)]));
    await assert.rejects(received(server), { code, requestId: "req_1" });
    assert.equal(server.requests.length, 1);
  }
});

test("a turn whose process died is requested again, with a restart event", async () => {
  const server = new ScriptedServer(
    events([STARTED, text("Gone"), failed("process_died")]),
    events(WHOLE, "end", 1, OTHER_TURN),
    committed("Hello", OTHER_TURN),
  );
  const stream = chatOf(server).send("Hi", { stream: true });
  const yielded = await all(stream);
  assert.deepEqual(yielded.map(short), ["1 started", "2 Gone", "restarted 2", "1 started", "2 Hel", "3 lo", "4 finished"]);
  assert.equal(stream.text, "Hello");
  assert.equal(stream.turnId, OTHER_TURN);
  assert.equal((await stream.answer()).turn.id, OTHER_TURN);
  assert.deepEqual(requestsOf(server), [SENT, SENT, `GET /api/turns/${OTHER_TURN}`]);
});

test("a turn that kills its process each time fails after the retries", async () => {
  const dying = [1, 2, 3].map((each) => events([STARTED, failed("process_died")], "end", 1, `${TURN}${each}`));
  const server = new ScriptedServer(...dying);
  const yielded: string[] = [];
  const stream = chatOf(server, { retries: { times: 2 } }).send("Hi", { stream: true });
  await assert.rejects(
    async () => {
      for await (const event of stream) yielded.push(short(event));
    },
    (problem) => problem.name === "TurnFailed" && problem.code === "process_died" && !/running/.test(problem.message),
  );
  assert.deepEqual(yielded, ["1 started", "restarted 2", "1 started", "restarted 3", "1 started", "2 finished"]);
  assert.deepEqual(server.pauses, [100, 200]);
  server.done();
});

test("a turn that kills its process each time fails even with endless retries", async () => {
  const away = Array.from({ length: 30 }, () => REFUSED as typeof REFUSED);
  const dying = Array.from({ length: 11 }, (_, each) => events([failed("process_died")], "end", 1, `${TURN}${each}`));
  const server = new ScriptedServer(...away, ...dying);
  const endless = { times: Infinity, patience: Infinity };
  await assert.rejects(received(server, { retries: endless }), errors.TurnFailed);
  server.done();
});

test("a failure of the model is thrown after its event, and not retried", async () => {
  const server = new ScriptedServer(events([STARTED, failed("model_unavailable")]));
  const yielded: string[] = [];
  const stream = chatOf(server).send("Hi", { stream: true, idempotencyKey: "k" });
  await assert.rejects(
    async () => {
      for await (const event of stream) yielded.push(short(event));
    },
    (problem) =>
      problem instanceof errors.ModelUnavailable &&
      problem.message === "it is model_unavailable" &&
      problem.idempotencyKey === "k",
  );
  assert.deepEqual(yielded, ["1 started", "2 finished"]);
  await assert.rejects(stream.answer(), errors.ModelUnavailable);
  server.done();
});

test("a discarded turn raises TurnStopped, and a kept one is an answer", async () => {
  const discarded = new ScriptedServer(events([STARTED, finished("discarded")]));
  await assert.rejects(chatOf(discarded).send("Hi"), errors.TurnStopped);
  const kept = new ScriptedServer(events([STARTED, finished("kept")]), committed("Hel", TURN, "interrupted"));
  assert.equal((await chatOf(kept).send("Hi")).turn.kind, "interrupted");
});

test("a reader that received the end receives nothing more", async () => {
  const server = new ScriptedServer(events([finished()], "end", 4));
  assert.deepEqual(await all(chatOf(server).events(TURN, { after: 4 })), []);
});

test("progress resets the count of retries", async () => {
  const script = WHOLE.map((event, place) => events([event], place < 3 ? "cut" : "end", place + 1));
  const server = new ScriptedServer(...script);
  assert.deepEqual(await received(server, { retries: { times: 1 } }), ALL);
  assert.deepEqual(server.pauses, [100, 100, 100]);
});

test("the error after all retries says that the turn may still run, and carries its key", async () => {
  const server = new ScriptedServer(events([STARTED], "cut"), REFUSED, REFUSED);
  await assert.rejects(
    received(server, { retries: { times: 2 } }),
    (problem) =>
      problem instanceof errors.ServerUnavailable &&
      problem.idempotencyKey === "k" &&
      /may still run/.test(problem.message),
  );
});

test("without retries a cut stream raises ServerUnavailable", async () => {
  const server = new ScriptedServer(events([STARTED], "cut"));
  await assert.rejects(received(server, { retries: { times: 0 } }), errors.ServerUnavailable);
  assert.equal(server.only.path, "/api/turns");
});

test("a reader continues after a cut, and a failed turn raises no error", async () => {
  const server = new ScriptedServer(
    events([text("b")], "cut", 2),
    events([text("c")], "end", 3),
    events([failed("model_timeout")], "end", 4),
  );
  const yielded = await all(chatOf(server).events(TURN, { after: 1 }));
  assert.deepEqual(yielded.map(short), ["2 b", "3 c", "4 finished"]);
  assert.deepEqual(requestsOf(server), [READ(1), READ(2), READ(3)]);
});

test("events of every kind are yielded, and the text leaves out what a resume made void", async () => {
  const call = { type: "function_call", call_id: "c", name: "look", arguments: "" };
  const server = new ScriptedServer(
    events([
      STARTED,
      { type: "reasoning.delta", text: "Hm." },
      text("Step. "),
      { type: "item.done", item: { type: "message", role: "assistant", content: "Step. " } },
      text("Lost"),
      { type: "refusal.delta", text: "No" },
      { type: "item.added", item: call },
      { type: "arguments.delta", call_id: "c", text: "{}" },
      { type: "turn.resumed" },
      text("Kept."),
      finished(),
    ]),
  );
  const stream = chatOf(server).send("Hi", { stream: true, idempotencyKey: "k" });
  const types = (await all(stream)).map(({ type }) => type);
  assert.deepEqual(types.slice(5, 9), ["refusal.delta", "item.added", "arguments.delta", "turn.resumed"]);
  assert.equal(stream.text, "Step. Kept.");
});
