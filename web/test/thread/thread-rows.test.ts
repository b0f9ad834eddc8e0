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
  it("are the turns, then what is on its way", () => {
    expect(names(running("a", "running"), running("b", "queued"))).toEqual(["turn_1", "turn_2", "turn_3", "a", "b"]);
  });

  it("show a turn once, when it is committed and still about to leave", () => {
    expect(names(running("a", "ending", { turnId: "turn_3" }))).toEqual(["turn_1", "turn_2", "turn_3"]);
  });

  it("leave out what is about to be replaced, and all behind it", () => {
    expect(names(running("a", "running", { replaces: "turn_2" }))).toEqual(["turn_1", "a"]);
    expect(names(running("a", "sending", { replaces: "turn_1" }))).toEqual(["a"]);
    expect(names(running("a", "running", { replaces: "turn_0" }))).toEqual(["turn_1", "turn_2", "turn_3", "a"]);
  });

  it("show it while another one is before what will replace it", () => {
    const edit = running("edit", "queued", { replaces: "turn_1" });
    expect(names(running("a", "running"), edit)).toEqual(["turn_1", "turn_2", "turn_3", "a", "edit"]);
  });

  it("are named as they were while they ran", () => {
    const [first] = threadRows(turnsOf(1, 1), [], () => "as before");
    expect(first?.name).toBe("as before");
  });
});
