import { describe, expect, it } from "vitest";
import { threadRows } from "../../src/thread/thread-rows";
import { PendingTurn, type PendingState } from "../../src/thread/pending-turn";
import { turnsOf } from "./fakes";

function running(name: string, state: PendingState, more: { replaces?: string; turnId?: string } = {}): PendingTurn {
  return new PendingTurn({ name, isLocal: true, input: [], state, ...more });
}

const names = (...given: PendingTurn[]): string[] =>
  threadRows(turnsOf(1, 3), given, ({ id }) => id).map(({ name }) => name);

describe("the rows of a thread", () => {
  it("are the turns, then the pending ones", () => {
    expect(names(running("a", "running"), running("b", "queued"))).toEqual(["turn_1", "turn_2", "turn_3", "a", "b"]);
  });

  it("show a committed turn once while it is still pending", () => {
    expect(names(running("a", "ending", { turnId: "turn_3" }))).toEqual(["turn_1", "turn_2", "turn_3"]);
  });

  it("leave out a turn that is being replaced, and all later ones", () => {
    expect(names(running("a", "running", { replaces: "turn_2" }))).toEqual(["turn_1", "a"]);
    expect(names(running("a", "sending", { replaces: "turn_1" }))).toEqual(["a"]);
    expect(names(running("a", "running", { replaces: "turn_0" }))).toEqual(["turn_1", "turn_2", "turn_3", "a"]);
  });

  it("show it while another turn runs before its replacement", () => {
    const edit = running("edit", "queued", { replaces: "turn_1" });
    expect(names(running("a", "running"), edit)).toEqual(["turn_1", "turn_2", "turn_3", "a", "edit"]);
  });

  it("keep the names they had while pending", () => {
    const [first] = threadRows(turnsOf(1, 1), [], () => "as before");
    expect(first?.name).toBe("as before");
  });
});
