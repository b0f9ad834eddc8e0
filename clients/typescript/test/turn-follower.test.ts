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
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
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
      assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
      assert.deepEqual(asked(server), [ASKED, READ(after)]);
    });
  }
}

test("a stream cut within an event is read on behind the last whole one", async () => {
  const [first = "", second = ""] = events(WHOLE).pieces as string[];
  for (let place = 0; place < second.length; place++) {
    const broken = { ...events([]), pieces: [first, second.slice(0, place)], ending: "cut" } as const;
    const server = new ScriptedServer(broken, events(WHOLE.slice(1), "end", 2));
    assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
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
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
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

test("events that were told before are dropped, and a gap is a broken stream", async () => {
  const gap: Scripted = { ...events([]), pieces: [sent(2, text("Hel")), sent(4, finished())] };
  const server = new ScriptedServer(events(WHOLE.slice(0, 1), "cut"), gap, events(WHOLE));
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
  assert.deepEqual(asked(server), [ASKED, READ(1), READ(2)]);
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

test("the beginning of a head, which browsers take for all of it, is no answer", async () => {
  const whole = { "content-type": "text/event-stream", "x-conversation-id": CHAT, "x-turn-id": TURN };
  for (const headers of [{}, { ...whole, "x-turn-id": TURN.slice(0, -1) }]) {
    const server = new ScriptedServer({ headers, pieces: [] }, events(WHOLE));
    assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
    assert.deepEqual(asked(server), [ASKED, ASKED]);
  }
});

test("a stream that ends early has lost its turn, and is asked for again", async () => {
  for (const before of [WHOLE.slice(0, 2), []]) {
    const server = new ScriptedServer(events(before), events(WHOLE));
    assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
    assert.deepEqual(asked(server), [ASKED, ASKED]);
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

test("of a turn that was kept shorter than it was told, all is told again", async () => {
  const kept = [STARTED, text("He"), finished("kept")];
  const server = new ScriptedServer(events(WHOLE.slice(0, 3), "cut"), events(kept.slice(2), "end", 3), events(kept));
  const stream = chatOf(server).send("Hi", { stream: true });
  const errorIn = (await all(stream)).map(short);
  assert.deepEqual(errorIn, ["1 started", "2 Hel", "3 lo", "restarted 1", "1 started", "2 He", "3 finished"]);
  assert.equal(stream.text, "He");
  assert.deepEqual(asked(server), [ASKED, READ(3), ASKED]);
});

test("a turn that failed where it was told beyond is asked for again", async () => {
  const server = new ScriptedServer(
    events(WHOLE.slice(0, 3), "cut"),
    events([failed("process_died")], "end", 2),
    events(WHOLE, "end", 1, OTHER_TURN),
  );
  const errorIn = await heard(server);
  assert.deepEqual(errorIn.slice(3), ["restarted 2", "1 started", "2 Hel", "3 lo", "4 finished"]);
});

test("a reader that was told more than was kept is told all again", async () => {
  const died = [STARTED, failed("process_died")];
  const server = new ScriptedServer(
    events(WHOLE.slice(0, 3), "cut"),
    events(died.slice(1), "end", 2),
    events(died),
  );
  const errorIn = await all(chatOf(server).events(TURN));
  assert.deepEqual(errorIn.map(short).slice(3), ["restarted 1", "1 started", "2 finished"]);
  assert.deepEqual(asked(server), [READ(0), READ(3), READ(0)]);
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

test("a turn that the store lost with its power is asked for again", async () => {
  const server = new ScriptedServer(
    events([STARTED], "cut"),
    error(404, "turn_not_found"),
    events(WHOLE, "end", 1, OTHER_TURN),
  );
  assert.deepEqual(await heard(server), ["1 started", "restarted 2", "1 started", "2 Hel", "3 lo", "4 finished"]);
  assert.deepEqual(asked(server), [ASKED, READ(1), ASKED]);
});

test("an attempt of which nothing was told takes nothing back", async () => {
  const server = new ScriptedServer(
    events([], "cut"),
    error(404, "turn_not_found"),
    events(WHOLE, "end", 1, OTHER_TURN),
  );
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
});

test("a turn that another request runs after all is asked for again; one whose wait ended is not", async () => {
  const errorIn = (code: string, type: string): string =>
    `event: error\ndata: {"error":{"message":"m","type":"${type}","param":null,"code":"${code}"}}\n\n`;
  const waits = { ...events([]), pieces: [": \n\n", errorIn("turn_moved", "server_error")] };
  const server = new ScriptedServer(waits, error(404, "turn_not_found"), events(WHOLE, "end", 1, OTHER_TURN));
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
  const ended = { ...events([]), pieces: [errorIn("wait_ended", "invalid_request_error")] };
  await assert.rejects(heard(new ScriptedServer(ended)), errors.WaitEnded);
});

test("who may run turns but not read them asks again", async () => {
  const server = new ScriptedServer(events([STARTED], "cut"), error(403, "missing_scope"), events(WHOLE));
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
  assert.deepEqual(asked(server), [ASKED, READ(1), ASKED]);
});

test("an error in the stream is passing if it is the server's", async () => {
  const errorIn = `event: error\ndata: {"error":{"message":"m","type":"server_error","param":null,"code":"shutting_down"}}\n\n`;
  const server = new ScriptedServer(
    { ...events([]), pieces: [sent(1, STARTED), errorIn] },
    events(WHOLE.slice(1), "end", 2),
  );
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
  const ended = errorIn.replace("server_error", "invalid_request_error").replace("shutting_down", "token_ended");
  const refusing = new ScriptedServer({ ...events([]), pieces: [sent(1, STARTED), ended] });
  await assert.rejects(
    heard(refusing),
    (problem) => problem instanceof errors.TokenEnded && problem.requestId === "req_1",
  );
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
  assert.deepEqual(await heard(server, { retries: { times: 1 } }), ["1 started", "2 Hel", "3 lo", "4 finished"]);
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

test("what was withdrawn is read once more to be sure, and then no more", async () => {
  const withdrawn = new ScriptedServer(events([]), events([]));
  assert.deepEqual(await all(chatOf(withdrawn).events(TURN)), []);
  assert.deepEqual(asked(withdrawn), [READ(0), READ(0)]);
  const broken = new ScriptedServer(events([]), events(WHOLE));
  assert.equal((await all(chatOf(broken).events(TURN))).length, 4);
});

test("a reader that was told beyond the end, and finds nothing behind it, looks back", async () => {
  const died = [STARTED, failed("process_died")];
  const server = new ScriptedServer(events(WHOLE.slice(0, 3), "cut"), events([]), events(died), events(died));
  const errorIn = await all(chatOf(server).events(TURN));
  assert.deepEqual(errorIn.map(short).slice(3), ["restarted 1", "1 started", "2 finished"]);
  assert.deepEqual(asked(server), [READ(0), READ(3), READ(0), READ(0)]);
  server.done();
});

test("who looks back and finds nothing has heard it all", async () => {
  const server = new ScriptedServer(events(WHOLE.slice(0, 2), "cut"), events([]), events(WHOLE.slice(0, 2)));
  assert.equal((await all(chatOf(server).events(TURN))).length, 2);
  server.done();
});

test("an error in the stream that says nothing is passing; of a broken store it is for good", async () => {
  for (const data of ["oops", "null", '{"error":null}', '{"error":{"code":7,"type":"server_error"}}']) {
    const pieces = [sent(1, STARTED), `event: error\ndata: ${data}\n\n`];
    const server = new ScriptedServer({ ...events([]), pieces }, events(WHOLE.slice(1), "end", 2));
    assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
  }
  const data = '{"error":{"message":"m","type":"server_error","code":"store_corrupt"}}';
  const server = new ScriptedServer({ ...events([]), pieces: [`event: error\ndata: ${data}\n\n`] });
  await assert.rejects(heard(server), { code: "store_corrupt" });
  assert.equal(server.heard.length, 1);
});

test("an event without a number is none", async () => {
  const pieces = [sent(1, STARTED), 'id: x\ndata: {"type":"text.delta","text":"?"}\n\n'];
  const server = new ScriptedServer({ ...events([]), pieces }, events(WHOLE.slice(1), "end", 2));
  assert.deepEqual(await heard(server), ["1 started", "2 Hel", "3 lo", "4 finished"]);
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
