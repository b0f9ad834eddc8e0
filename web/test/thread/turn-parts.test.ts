import { describe, expect, it } from "vitest";
import type { Item } from "turnledger";
import { markdownOf, inputParts, isEmptyAnswer, partsOf, runningParts, type TurnPart } from "../../src/thread/turn-parts";
import { said, turnOf } from "./fakes";

function call(name: string, id: string, more: object = {}): Item {
  return { type: "function_call", call_id: id, name, arguments: "{}", ...more };
}

function result(id: string, output: unknown, more: object = {}): Item {
  return { type: "function_call_output", call_id: id, output, ...more };
}

const UNKNOWN =
  "Started, outcome unknown: the turn ended before a result was recorded. The call may or may not have " +
  "taken effect. Find out before calling it again.";

const steps = (parts: readonly TurnPart[]): string[] =>
  parts.flatMap((part) => (part.kind === "step" ? [`${part.name}: ${part.state}: ${part.output}`] : []));

const answered = (...output: Item[]): readonly TurnPart[] => partsOf(turnOf(1, { output })).output;

describe("the parts of a turn", () => {
  it("pair calls with results in order", () => {
    const later = [call("b", "1"), call("c", "2"), result("1", "y"), result("2", "z")];
    const parts = answered(call("a", "1"), result("1", "x"), ...later);
    expect(steps(parts)).toEqual(["a: done: x", "b: done: y", "c: done: z"]);
  });

  it("have the state of each call", () => {
    const parts = answered(
      call("a", "1"),
      call("b", "2"),
      call("c", "3"),
      call("d", "4"),
      result("1", "Not started: the turn ended before this call was run. It has had no effect."),
      result("2", UNKNOWN),
      result("3", "No.", { status: "failed" }),
    );
    const states = steps(parts).map((each) => each.split(": ")[1]);
    expect(states).toEqual(["not started", "unknown", "failed", "not answered"]);
    expect(steps(runningParts([call("a", "1")]))).toEqual(["a: running: null"]);
  });

  it("treat a tool's own text as output, however it begins", () => {
    const own = ["Not started: the queue was empty. 3 mails sent", "Not answered: nobody is at home", `${UNKNOWN} Or not?`];
    const parts = own.flatMap((words, at) => answered(call("a", `${at}`), result(`${at}`, words)));
    expect(steps(parts)).toEqual(own.map((words) => `a: done: ${words}`));
  });

  it("are no answer without text, a call or a picture", () => {
    const thought = { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "Hm." }] };
    expect(isEmptyAnswer(turnOf(1, { output: [said("", "assistant")] }))).toBe(true);
    expect(isEmptyAnswer(turnOf(1, { output: [thought, said("", "assistant")] }))).toBe(true);
    expect(isEmptyAnswer(turnOf(1, { output: [said("Hi", "assistant")] }))).toBe(false);
    expect(isEmptyAnswer(turnOf(1, { output: [call("a", "1")] }))).toBe(false);
    expect(isEmptyAnswer(turnOf(1, { output: [] }))).toBe(false); // an appended message
  });

  it("show results from the next turn at their calls only", () => {
    const first = turnOf(1, { output: [call("a", "1")] });
    const next = turnOf(2, { input: [result("1", "x"), said("And?")] });
    expect(steps(partsOf(first, undefined, next).output)).toEqual(["a: done: x"]);
    expect(partsOf(next, first).input).toMatchObject([{ kind: "text", text: "And?" }]);
    expect(steps(partsOf(next).input)).toEqual(["function: done: x"]);
  });

  it("leave out hidden items, and a result with its call", () => {
    const turn = turnOf(1, { output: [call("a", "1"), result("1", "x"), said("Hi", "assistant")], hidden: [1] });
    expect(partsOf(turn).output).toMatchObject([{ kind: "text", text: "Hi" }]);
    expect(partsOf({ ...turn, hidden: [0, 2] }).input).toEqual([]);
    expect(partsOf({ ...turn, hidden: [2] }).output.length).toBe(1);
  });

  it("indent JSON without changing numbers", () => {
    const [laidOut] = answered(call("a", "1", { arguments: '{"n":1,"m":"a b"}' }));
    expect(laidOut).toMatchObject({ input: '{\n  "n": 1,\n  "m": "a b"\n}' });
    const [large] = answered(call("a", "1", { arguments: '{"n": 12345678901234567890}' }));
    expect(large).toMatchObject({ input: '{"n": 12345678901234567890}' });
    const [broken] = answered(call("a", "1", { arguments: '{"n": ' }));
    expect(broken).toMatchObject({ input: '{"n": ' });
  });

  it("are text, reasoning, images, files, notes and unknown steps", () => {
    const content = [
      { type: "input_text", text: "See " },
      { type: "input_text", text: "this" },
      { type: "input_image", image_url: "data:image/png;base64,AA" },
      { type: "image_url", image_url: { url: "https://host.example/a.png" } },
      { type: "input_file", filename: "a.pdf" },
    ];
    const parts = inputParts([{ type: "message", role: "user", content }, said("Be brief.", "developer")]);
    expect(parts).toMatchObject([
      { kind: "text", text: "See this" },
      { kind: "picture", url: "data:image/png;base64,AA" },
      { kind: "picture", url: "https://host.example/a.png" },
      { kind: "file", name: "a.pdf" },
      { kind: "note", text: "Be brief." },
    ]);
    const more = answered(
      { type: "reasoning", summary: [{ type: "summary_text", text: "Hm." }] },
      { type: "reasoning", summary: [], content: [] },
      { type: "future_thing", of: 1 },
      { type: "web_search_call", id: "w", status: "completed" },
      said("Cut", "assistant"),
    );
    expect(more.map(({ kind }) => kind)).toEqual(["reasoning", "other", "step", "text"]);
  });

  it("tolerate malformed items", () => {
    const odd = [
      { type: "message" },
      { type: "message", role: "user", content: [{ type: "odd" }, { type: "input_image", image_url: 7 }] },
      { type: "reasoning", summary: "no list" },
      { type: "function_call" },
      { type: "function_call_output" },
      { type: "function_call_output", call_id: "x", output: [null, { type: "input_image", image_url: "data:a" }] },
    ] as unknown as Item[];
    expect(() => answered(...odd)).not.toThrow();
    expect(() => inputParts(odd)).not.toThrow();
  });

  it("are copied as Markdown", () => {
    const parts = answered(said("One", "assistant"), call("a", "1"), said("Two", "assistant"));
    expect(markdownOf(parts)).toBe("One\n\nTwo");
  });
});
