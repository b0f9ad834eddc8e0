import { describe, expect, test } from "vitest";
import type { Change } from "turnledger";
import { FeedCursor, type NumberedChange } from "../../src/feed/feed-cursor";

const EPOCH = { name: "one", since: 100 };

function told(number: number, epoch = EPOCH): NumberedChange {
  return { epoch, number, change: { type: "start", position: `${epoch.name} ${number}`, at: number } };
}

function types(changes: readonly Change[] | null): string[] | null {
  return changes && changes.map(({ type, position }) => `${type} ${position}`);
}

describe("the shared feed", () => {
  test("delivers each change once and in order", () => {
    const hearing = new FeedCursor(200);
    hearing.begin(EPOCH, "one 0");
    expect(types(hearing.accept(told(1)))).toEqual(["start one 1"]);
    expect(types(hearing.accept(told(1)))).toEqual([]);
    expect(types(hearing.accept(told(2)))).toEqual(["start one 2"]);
    expect(hearing.position).toEqual({ epoch: EPOCH, number: 2, position: "one 2" });
  });

  test("requests a missing change, and delivers it then", () => {
    const [slept, awake] = [new FeedCursor(200), new FeedCursor(200)];
    for (const each of [slept, awake]) each.begin(EPOCH, "one 0");
    for (const number of [1, 2, 3]) awake.accept(told(number));
    expect(slept.accept(told(3))).toBeNull();
    const missed = awake.after("one", 0);
    expect(missed.map(({ number }) => number)).toEqual([1, 2, 3]);
    expect(missed.flatMap((each) => types(slept.accept(each)))).toEqual(["start one 1", "start one 2", "start one 3"]);
    expect(slept.compare(awake.position!)).toBeNull();
  });

  test("reports a gap for changes that are not remembered", () => {
    const [slept, awake] = [new FeedCursor(200), new FeedCursor(200)];
    for (const each of [slept, awake]) each.begin(EPOCH, "one 0");
    for (let number = 1; number <= 1_000; number++) awake.accept(told(number));
    expect(awake.after("one", 0)).toEqual([]);
    expect(awake.after("another", 999)).toEqual([]);
    expect(slept.compare(awake.position!)).toMatchObject({ type: "gap", position: "one 1000" });
    expect(types(slept.accept(told(1_001)))).toEqual(["start one 1001"]);
  });

  test("joins an epoch that began before the tab, and reports a gap otherwise", () => {
    const [later, earlier] = [new FeedCursor(200), new FeedCursor(50)];
    expect(types(later.accept(told(7)))).toEqual(["start one 7"]);
    expect(types(earlier.accept(told(7)))).toEqual(["gap one 7", "start one 7"]);
    expect(new FeedCursor(200).compare({ epoch: EPOCH, number: 7, position: "one 7" })).toBeNull();
    expect(new FeedCursor(50).compare({ epoch: EPOCH, number: 7, position: "one 7" })).toMatchObject({ type: "gap" });
  });

  test("reports one gap for another epoch", () => {
    const hearing = new FeedCursor(200);
    hearing.begin(EPOCH, "one 0");
    const other = { name: "other", since: 150 };
    const gap: NumberedChange = { epoch: other, number: 1, change: { type: "gap", position: "other 1", at: 1 } };
    expect(types(hearing.accept(gap))).toEqual(["gap other 1"]);
    expect(types(hearing.accept(gap))).toEqual([]);
    expect(types(hearing.accept(told(2, other)))).toEqual(["start other 2"]);
  });

  test("repeats nothing to others after a takeover", () => {
    const [ahead, behind] = [new FeedCursor(200), new FeedCursor(200)];
    for (const each of [ahead, behind]) each.begin(EPOCH, "one 0");
    for (const number of [1, 2, 3]) ahead.accept(told(number));
    behind.accept(told(1));
    const again = [2, 3, 4].map((number) => told(number));
    expect(again.flatMap((each) => types(behind.accept(each)))).toHaveLength(3);
    expect(again.flatMap((each) => types(ahead.accept(each)))).toEqual(["start one 4"]);
  });
});
