import type { TurnEvent } from "turnledger";
import { describe, expect, it } from "vitest";
import { PendingTurn } from "../../src/thread/pending-turn";
import { delta, finished, said, STARTED } from "./fakes";

function running(): PendingTurn {
  const made = new PendingTurn({ name: "a", isLocal: true, input: [said("Hello")] });
  made.identify("turn_1");
  return made;
}

describe("a pending turn", () => {
  it("applies each event once, so that no text repeats", () => {
    const one = running();
    for (const event of [STARTED, delta(2, "Hel"), delta(3, "lo"), delta(2, "Hel"), delta(3, "lo")]) one.apply(event);
    expect(one.text.value).toBe("Hello");
    expect(one.last).toBe(3);
    expect(one.state.value).toBe("running");
  });

  it("moves its text into the item once that is complete", () => {
    const one = running();
    for (const event of [STARTED, delta(2, "Hi")]) one.apply(event);
    one.apply({ type: "item.done", number: 3, item: said("Hi", "assistant") });
    expect(one.text.value).toBe("");
    expect(one.items.value).toEqual([said("Hi", "assistant")]);
  });

  it("shows reasoning, a refusal and the arguments of calls as they stream in", () => {
    const one = running();
    const [c, d] = ["c", "d"].map((id) => ({ type: "function_call", call_id: id, name: "look", arguments: "" }));
    for (const event of [
      STARTED,
      { type: "reasoning.delta", number: 2, text: "Hm" },
      { type: "reasoning.delta", number: 3, text: "." },
      { type: "refusal.delta", number: 4, text: "No" },
      { type: "item.added", number: 5, item: c },
      { type: "item.added", number: 6, item: d },
      { type: "arguments.delta", number: 7, call_id: "c", text: "{" },
      { type: "arguments.delta", number: 8, call_id: "d", text: "[" },
      { type: "arguments.delta", number: 9, call_id: "c", text: "}" },
    ] as TurnEvent[]) one.apply(event);
    expect([one.reasoning.value, one.text.value]).toEqual(["Hm.", "No"]);
    expect(one.calls.value.map(({ input }) => input.value)).toEqual(["{}", "["]);
    one.apply({ type: "item.done", number: 10, item: { type: "reasoning", summary: [] } });
    expect([one.reasoning.value, one.text.value, one.items.value.length]).toEqual(["", "No", 1]);
    one.apply({ type: "item.done", number: 11, item: { ...c!, arguments: "{}" } });
    expect(one.calls.value.map(({ item }) => item["call_id"])).toEqual(["d"]);
  });

  it("drops what streamed in since the last finished item when it is resumed", () => {
    const one = running();
    for (const event of [
      STARTED,
      { type: "item.done", number: 2, item: said("Kept", "assistant") },
      { type: "reasoning.delta", number: 3, text: "Hm" },
      delta(4, "Lost"),
      { type: "item.added", number: 5, item: { type: "function_call", call_id: "c" } },
      { type: "turn.resumed", number: 6 },
      delta(7, "Again"),
    ] as TurnEvent[]) one.apply(event);
    expect([one.reasoning.value, one.text.value, one.calls.value, one.last]).toEqual(["", "Again", [], 7]);
    expect(one.items.value).toEqual([said("Kept", "assistant")]);
  });

  it("drops its events when it is restarted, and reports that", () => {
    const one = running();
    for (const event of [STARTED, delta(2, "This never")]) one.apply(event);
    one.apply({ type: "turn.restarted", turn: "turn_2", attempt: 2 });
    expect([one.text.value, one.last, one.turnId.value, one.isRestarted.value]).toEqual(["", 0, "turn_2", true]);
    for (const event of [STARTED, delta(2, "This")]) one.apply(event);
    expect(one.text.value).toBe("This");
  });

  it("drops its events for another turn id, and not for the same", () => {
    const one = running();
    for (const event of [STARTED, delta(2, "One")]) one.apply(event);
    one.turnId.value = null;
    one.identify("turn_1");
    expect([one.text.value, one.isRestarted.value]).toEqual(["One", false]);
    one.identify("turn_2");
    expect([one.text.value, one.isRestarted.value]).toEqual(["", true]);
  });

  it("stays stopping, whatever events arrive", () => {
    const one = running();
    one.state.value = "stopping";
    for (const event of [STARTED, delta(2, "One")]) one.apply(event);
    expect(one.state.value).toBe("stopping");
    one.apply(finished(3, "kept"));
    expect(one.state.value).toBe("ending");
  });

  it("reports its failure", () => {
    expect(running().apply(finished(1, "failed", "model_refused"))?.code).toBe("model_refused");
  });
});
