import { describe, expect, it } from "vitest";
import { OnItsWay } from "../../src/thread/pending-turns";
import { Running, type RunningState } from "../../src/thread/pending-turn";

function made(name: string, state: RunningState = "queued", isHere = true): Running {
  return new Running({ name, isHere, input: [], state });
}

const names = (way: OnItsWay): string[] => way.all.value.map(({ name }) => name);

describe("what is on its way", () => {
  it("stands in the order in which it is to run", () => {
    const way = new OnItsWay();
    for (const each of [made("a", "running"), made("b"), made("c")]) way.add(each);
    way.add(made("first"), true);
    expect(names(way)).toEqual(["a", "first", "b", "c"]);
  });

  it("has what has begun before all that waits", () => {
    const way = new OnItsWay();
    const late = made("late");
    for (const each of [made("a", "running"), made("b"), late]) way.add(each);
    way.begun(late);
    expect(names(way)).toEqual(["a", "late", "b"]);
  });

  it("counts those before one that have not ended", () => {
    const way = new OnItsWay();
    const last = made("last");
    for (const each of [made("a", "ending"), made("b", "running"), made("c"), last]) way.add(each);
    expect(way.before(last)).toBe(2);
    expect(way.first?.name).toBe("b");
  });

  it("knows which of those from here nobody knows the turn of", () => {
    const way = new OnItsWay();
    const elsewhere = made("other", "running", false);
    const [waits, asked] = [made("waits", "sending"), made("asked", "sending")];
    for (const each of [elsewhere, asked, waits]) way.add(each);
    expect(way.unknown).toBeUndefined();
    asked.isAsked.value = true;
    expect(way.unknown).toBe(asked);
    expect(way.held).toBe(1);
    asked.guess.value = "turn_1";
    expect([way.unknown, way.isGuessed("turn_1"), way.isGuessed("turn_2")]).toEqual([undefined, true, false]);
    asked.turnId.value = "turn_1";
    expect([way.of("turn_1"), way.isGuessed("turn_1"), way.held]).toEqual([asked, false, 0]);
  });

  it("lets go of what has ended", () => {
    const way = new OnItsWay();
    const one = made("a");
    way.add(one);
    way.leave(one);
    way.leave(one);
    expect([names(way), way.has(one)]).toEqual([[], false]);
  });
});
