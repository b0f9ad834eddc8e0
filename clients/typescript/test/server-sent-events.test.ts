import assert from "node:assert/strict";
import { test } from "node:test";

import { eventsOf, lineCutter, type ServerSentEvent } from "../src/server-sent-events.js";
import { all } from "./scripted-server.js";

async function* pieces(...given: string[]): AsyncGenerator<string> {
  yield* given;
}

const STREAM =
  'id: 1\nevent: a\ndata: {"x":"\u2028é🦊"}\n\n: \n\n: \nid: p2\n\nid: 3\r\nevent: b\r\ndata:no space\r\ndata: two\r\n\r\ndata\n\n';
const EVENTS: ServerSentEvent[] = [
  { id: "1", type: "a", data: '{"x":"\u2028é🦊"}' },
  { id: "p2", type: "", data: "" },
  { id: "3", type: "b", data: "no space\ntwo" },
];

test("events are the same wherever the stream is cut into pieces", async () => {
  for (let place = 0; place <= STREAM.length; place++) {
    assert.deepEqual(await all(eventsOf(pieces(STREAM.slice(0, place), STREAM.slice(place)))), EVENTS);
  }
  assert.deepEqual(await all(eventsOf(pieces(...STREAM))), EVENTS);
});

test("an event without its empty line is not yielded", async () => {
  const whole = "id: 1\ndata: x\n";
  assert.deepEqual(await all(eventsOf(pieces(whole))), []);
  assert.deepEqual(await all(eventsOf(pieces(whole, "\n"))), [{ id: "1", type: "", data: "x" }]);
});

test("lines are joined across pieces", () => {
  const cut = lineCutter();
  assert.deepEqual(["a", "b\nc", "", "\n\n", "d"].map(cut), [[], ["ab"], [], ["c", ""], []]);
  assert.deepEqual(cut("\n"), ["d"]);
});
