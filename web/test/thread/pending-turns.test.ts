import { describe, expect, it } from "vitest";
import { countBefore, PendingTurns } from "../../src/thread/pending-turns";
import { PendingTurn, type PendingState } from "../../src/thread/pending-turn";

function made(name: string, state: PendingState = "queued", isLocal = true): PendingTurn {
  return new PendingTurn({ name, isLocal, input: [], state });
}

const names = (pending: PendingTurns): string[] => pending.all.value.map(({ name }) => name);

describe("pending turns", () => {
  it("are in the order in which they run", () => {
    const pending = new PendingTurns();
    for (const each of [made("a", "running"), made("b"), made("c")]) pending.add(each);
    pending.add(made("first"), true);
    expect(names(pending)).toEqual(["a", "first", "b", "c"]);
  });

  it("have started ones before waiting ones", () => {
    const pending = new PendingTurns();
    const late = made("late");
    for (const each of [made("a", "running"), made("b"), late]) pending.add(each);
    pending.moveStarted(late);
    expect(names(pending)).toEqual(["a", "late", "b"]);
  });

  it("count those before one that have not ended", () => {
    const pending = new PendingTurns();
    const last = made("last");
    for (const each of [made("a", "ending"), made("b", "running"), made("c"), last]) pending.add(each);
    expect(countBefore(pending.all.value, last)).toBe(2);
    last.ahead.value = 5; // three of them are not shown here
    expect(countBefore(pending.all.value, last)).toBe(5);
    expect(pending.first?.name).toBe("b");
  });

  it("find local ones without a turn id", () => {
    const pending = new PendingTurns();
    const elsewhere = made("other", "running", false);
    const [waits, asked] = [made("waits", "sending"), made("asked", "sending")];
    for (const each of [elsewhere, asked, waits]) pending.add(each);
    expect(pending.hasUnidentified).toBe(false);
    asked.isSent.value = true;
    expect(pending.hasUnidentified).toBe(true);
    asked.turnId.value = "turn_1";
    expect([pending.of("turn_1"), pending.hasUnidentified]).toEqual([asked, false]);
  });

  it("drop ended ones", () => {
    const pending = new PendingTurns();
    const one = made("a");
    pending.add(one);
    pending.remove(one);
    pending.remove(one);
    expect([names(pending), pending.has(one)]).toEqual([[], false]);
  });
});
