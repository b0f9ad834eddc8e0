/** A turn is followed to its end through whatever happens: every event once, in order. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errors } from "../src/index.js";
import { ASKED, asked, chatOf, heard, READ, short, WHOLE } from "./following.js";
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
  standing,
  STARTED,
  text,
  TURN,
  type Scripted,
} from "./scripted-server.js";

test("a turn that nothing happens to is asked for once", async () => {
  const server = new ScriptedServer(events(WHOLE));
  assert.deepEqual(await heard(server), ALL);
  assert.deepEqual(server.only.body, { model: "demo", chat: CHAT, input: "Hi", stream: true });
  assert.equal(server.only.headers["idempotency-key"], "k");
});

for (const ending of ["cut", "silence"] as const) {
  for (const after of [1, 2, 3]) {
    test(`a stream that ends by ${ending} after ${after} events is read on behind the last one`, async () => {
      const server = new ScriptedServer(
        events(WHOLE.slice(0, after), ending),
        events(WHOLE.slice(after), "end", after + 1),
      );
      assert.deepEqual(await heard(server), ALL);
      assert.deepEqual(asked(server), [ASKED, READ(after)]);
    });
  }
}

test("a stream cut within an event is read on behind the last whole one", async () => {
  const [first = "", second = ""] = events(WHOLE).pieces as string[];
  for (let place = 0; place < second.length; place++) {
    const broken = { ...events([]), pieces: [first, second.slice(0, place)], ending: "cut" } as const;
    const server = new ScriptedServer(broken, events(WHOLE.slice(1), "end", 2));
    assert.deepEqual(await heard(server), ALL);
    assert.deepEqual(asked(server), [ASKED, READ(1)]);
  }
});

test("before the turn is known, the same request is sent again under the same key", async () => {
  const server = new ScriptedServer(
    REFUSED,
    error(503, "shutting_down"),
    { ...events([]), ending: "cut", status: 502 },
    events(WHOLE),
  );
  assert.deepEqual(await heard(server), ALL);
  assert.deepEqual(asked(server), [ASKED, ASKED, ASKED, ASKED]);
  assert.equal(new Set(server.heard.map((each) => JSON.stringify([each.headers, each.body]))).size, 1);
});

test("before it is sent again and not begun, what goes before it is waited for", async () => {
  const server = new ScriptedServer(REFUSED, events(WHOLE.slice(0, 1), "cut"), events(WHOLE.slice(1), "end", 2));
  const sentBefore: number[] = [];
  const beforeRetry = async (): Promise<void> => void sentBefore.push(server.heard.length);
  const stream = chatOf(server).send("Hi", { stream: true, model: "demo", idempotencyKey: "k", beforeRetry });
  assert.deepEqual((await all(stream)).length, 4);
  assert.deepEqual([sentBefore, asked(server)], [[1], [ASKED, ASKED, READ(1)]]);
});

test("a turn that is not there to be edited, or read, is an error", async () => {
  const editing = new ScriptedServer(error(404, "turn_not_found"));
  await assert.rejects(chatOf(editing).edit(TURN, "Hi"), errors.TurnNotFound);
  const reading = new ScriptedServer(error(404, "turn_not_found"));
  await assert.rejects(all(chatOf(reading).events(TURN)), errors.TurnNotFound);
  const barred = new ScriptedServer(error(403, "missing_scope"));
  await assert.rejects(chatOf(barred).send("Hi"), errors.NotAdmitted);
});

test("what is no Turnledger is not asked twice", async () => {
  const server = new ScriptedServer({ headers: { "content-type": "text/html" }, pieces: ["<!doctype html>"] });
  await assert.rejects(heard(server), { name: "RequestFailed" });
  assert.equal(server.heard.length, 1);
});

const ALL = ["1 started", "2 Hel", "3 lo", "4 finished"];
const TOLD = ALL.slice(0, 3);
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

/** What is heard of a turn through these answers, and what is asked for. */
function follows(name: string, script: Scripted[], told: string[], requests: string[], isReader = false): void {
  test(name, async () => {
    const server = new ScriptedServer(...script);
    const chat = chatOf(server);
    const stream = isReader ? chat.events(TURN) : chat.send("Hi", { stream: true, idempotencyKey: "k" });
    assert.deepEqual((await all(stream)).map(short), told);
    assert.deepEqual(asked(server), requests);
    server.done();
  });
}

const gap = { ...events([]), pieces: [sent(2, text("Hel")), sent(4, finished())] };
const told = [events(WHOLE.slice(0, 1), "cut"), gap, events(WHOLE)];
follows("events that were told before are dropped, and a gap is a broken stream", told, ALL, [ASKED, READ(1), READ(2)]);
const whole = { "content-type": "text/event-stream", "x-conversation-id": CHAT, "x-turn-id": TURN };
for (const headers of [{}, { ...whole, "x-turn-id": TURN.slice(0, -1) }]) {
  const begun = { headers, pieces: [] };
  follows("the beginning of a head, which browsers take for all of it", [begun, events(WHOLE)], ALL, [ASKED, ASKED]);
}
for (const before of [WHOLE.slice(0, 2), []]) {
  follows("a stream that ends early has lost its turn", [events(before), events(WHOLE)], ALL, [ASKED, ASKED]);
}
const kept = [STARTED, text("He"), finished("kept")];
follows(
  "of a turn that was kept shorter than it was told, all is told again",
  [CUT, events(kept.slice(2), "end", 3), events(kept)],
  [...TOLD, "restarted 1", "1 started", "2 He", "3 finished"],
  [ASKED, READ(3), ASKED],
);
follows(
  "a turn that failed where it was told beyond is asked for again",
  [CUT, events(DIED.slice(1), "end", 2), ANEW],
  [...TOLD, "restarted 2", ...ALL],
  [ASKED, READ(3), ASKED],
);
follows(
  "a turn that the store lost with its power is asked for again",
  [events([STARTED], "cut"), LOST, ANEW],
  ["1 started", "restarted 2", ...ALL],
  [ASKED, READ(1), ASKED],
);
follows("an attempt of which nothing was told takes nothing back", [events([], "cut"), LOST, ANEW], ALL, [
  ASKED,
  READ(0),
  ASKED,
]);
const moved = inStream(errorInStream("turn_moved", "server_error"), [": \n\n"]);
follows("a turn that another request runs after all", [moved, LOST, ANEW], ALL, [ASKED, READ(0), ASKED]);
const unreadable = error(403, "missing_scope");
follows(
  "who may run turns but not read them asks again",
  [events([STARTED], "cut"), unreadable, events(WHOLE)],
  ALL,
  [ASKED, READ(1), ASKED],
);
const rest = events(WHOLE.slice(1), "end", 2);
const passing = ["oops", "null", '{"error":null}', '{"error":{"code":7,"type":"server_error"}}'];
for (const data of [errorInStream("shutting_down", "server_error"), ...passing]) {
  follows(`an error in the stream is passing: ${data}`, [inStream(data, [sent(1, STARTED)]), rest], ALL, [ASKED, READ(1)]);
}
const unnumbered = [sent(1, STARTED), 'id: x\ndata: {"type":"text.delta","text":"?"}\n\n'];
follows("an event without a number is none", [{ ...events([]), pieces: unnumbered }, rest], ALL, [ASKED, ASKED]);
follows(
  "a reader that was told more than was kept is told all again",
  [CUT, events(DIED.slice(1), "end", 2), STAYS_DEAD],
  [...TOLD, ...RESTARTED],
  [READ(0), READ(3), READ(0)],
  true,
);
follows(
  "a reader that was told beyond the end, and finds nothing behind it, looks back",
  [CUT, events([]), STAYS_DEAD, STAYS_DEAD],
  [...TOLD, ...RESTARTED],
  [READ(0), READ(3), READ(0), READ(0)],
  true,
);
const some = WHOLE.slice(0, 2);
follows(
  "who looks back and finds nothing has heard it all",
  [events(some, "cut"), events([]), events(some)],
  TOLD.slice(0, 2),
  [READ(0), READ(2), READ(0)],
  true,
);
follows("what was withdrawn is read once more to be sure", [events([]), events([])], [], [READ(0), READ(0)], true);
follows("what broke off before its first event is read", [events([]), events(WHOLE)], ALL, [READ(0), READ(0)], true);

test("an error in the stream is thrown if it is for good", async () => {
  for (const [code, type] of [
    ["wait_ended", "invalid_request_error"],
    ["token_ended", "invalid_request_error"],
    ["store_corrupt", "server_error"],
  ] as const) {
    const server = new ScriptedServer(inStream(errorInStream(code, type), [sent(1, STARTED)]));
    await assert.rejects(heard(server), { code, requestId: "req_1" });
    assert.equal(server.heard.length, 1);
  }
});

test("what its process did not survive begins anew, and that is told", async () => {
  const server = new ScriptedServer(
    events([STARTED, text("Gone"), failed("process_died")]),
    events(WHOLE, "end", 1, OTHER_TURN),
    standing("Hello", OTHER_TURN),
  );
  const stream = chatOf(server).send("Hi", { stream: true });
  const errorIn = await all(stream);
  assert.deepEqual(errorIn.map(short), ["1 started", "2 Gone", "restarted 2", "1 started", "2 Hel", "3 lo", "4 finished"]);
  assert.equal(stream.text, "Hello");
  assert.equal(stream.turnId, OTHER_TURN);
  assert.equal((await stream.answer()).turn.id, OTHER_TURN);
  assert.deepEqual(asked(server), [ASKED, ASKED, `GET /api/turns/${OTHER_TURN}`]);
});

test("a turn that ends its process each time is not asked for for ever", async () => {
  const dying = [1, 2, 3].map((each) => events([STARTED, failed("process_died")], "end", 1, `${TURN}${each}`));
  const server = new ScriptedServer(...dying);
  const errorIn: string[] = [];
  const stream = chatOf(server, { retries: { times: 2 } }).send("Hi", { stream: true });
  await assert.rejects(
    async () => {
      for await (const event of stream) errorIn.push(short(event));
    },
    (problem) => problem.name === "TurnFailed" && problem.code === "process_died" && !/running/.test(problem.message),
  );
  assert.deepEqual(errorIn, ["1 started", "restarted 2", "1 started", "restarted 3", "1 started", "2 finished"]);
  assert.deepEqual(server.pauses, [100, 200]);
  server.done();
});

test("whoever waits for a server for ever does not ask for such a turn for ever", async () => {
  const away = Array.from({ length: 30 }, () => REFUSED as typeof REFUSED);
  const dying = Array.from({ length: 11 }, (_, each) => events([failed("process_died")], "end", 1, `${TURN}${each}`));
  const server = new ScriptedServer(...away, ...dying);
  const endless = { times: Infinity, patience: Infinity };
  await assert.rejects(heard(server, { retries: endless }), errors.TurnFailed);
  server.done();
});

test("a model's failure is thrown behind its event, and not tried again", async () => {
  const server = new ScriptedServer(events([STARTED, failed("model_unavailable")]));
  const errorIn: string[] = [];
  const stream = chatOf(server).send("Hi", { stream: true, idempotencyKey: "k" });
  await assert.rejects(
    async () => {
      for await (const event of stream) errorIn.push(short(event));
    },
    (problem) =>
      problem instanceof errors.ModelUnavailable &&
      problem.message === "it is model_unavailable" &&
      problem.idempotencyKey === "k",
  );
  assert.deepEqual(errorIn, ["1 started", "2 finished"]);
  await assert.rejects(stream.answer(), errors.ModelUnavailable);
  server.done();
});

test("what was stopped and discarded is TurnStopped; what was kept is an answer", async () => {
  const discarded = new ScriptedServer(events([STARTED, finished("discarded")]));
  await assert.rejects(chatOf(discarded).send("Hi"), errors.TurnStopped);
  const kept = new ScriptedServer(events([STARTED, finished("kept")]), standing("Hel", TURN, "interrupted"));
  assert.equal((await chatOf(kept).send("Hi")).turn.kind, "interrupted");
});

test("a reader who was there at the end is told nothing more", async () => {
  const server = new ScriptedServer(events([finished()], "end", 4));
  assert.deepEqual(await all(chatOf(server).events(TURN, { after: 4 })), []);
});

test("progress begins the count of retries anew", async () => {
  const script = WHOLE.map((event, place) => events([event], place < 3 ? "cut" : "end", place + 1));
  const server = new ScriptedServer(...script);
  assert.deepEqual(await heard(server, { retries: { times: 1 } }), ALL);
  assert.deepEqual(server.pauses, [100, 100, 100]);
});

test("after all retries it says that the turn may be running, and under which key to ask", async () => {
  const server = new ScriptedServer(events([STARTED], "cut"), REFUSED, REFUSED);
  await assert.rejects(
    heard(server, { retries: { times: 2 } }),
    (problem) =>
      problem instanceof errors.ServerUnavailable &&
      problem.idempotencyKey === "k" &&
      /may still run/.test(problem.message),
  );
});

test("without retries there are none", async () => {
  const server = new ScriptedServer(events([STARTED], "cut"));
  await assert.rejects(heard(server, { retries: { times: 0 } }), errors.ServerUnavailable);
  assert.equal(server.only.path, "/api/turns");
});

test("events of a turn that is only read are read on, and its failure is no error", async () => {
  const server = new ScriptedServer(
    events([text("b")], "cut", 2),
    events([text("c")], "end", 3),
    events([failed("model_timeout")], "end", 4),
  );
  const errorIn = await all(chatOf(server).events(TURN, { after: 1 }));
  assert.deepEqual(errorIn.map(short), ["2 b", "3 c", "4 finished"]);
  assert.deepEqual(asked(server), [READ(1), READ(2), READ(3)]);
});

test("events of every kind are yielded, and the text is that of a resumed turn without its void part", async () => {
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
