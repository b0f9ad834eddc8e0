import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { listLines, CurrentDay } from "../../src/chats/date-groups";
import { row } from "./fakes";

const NOON = new Date(2026, 8, 21, 12).getTime();
const at = (month: number, day: number, hour = 12, year = 2026): number =>
  new Date(year, month - 1, day, hour).getTime();

function shown(times: readonly number[], now = NOON, locales = "en-GB"): string[] {
  const rows = times.map((touchedAt, number) => row({ id: `conv_${number}`, touchedAt }));
  return listLines(rows, now, true, locales).map((line) => (line.kind === "heading" ? line.text : line.id));
}

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("days begin at midnight, and older chats are grouped by month", () => {
  expect(shown([at(9, 21, 0), at(9, 20, 23), at(9, 14, 0), at(9, 13, 23), at(8, 31), at(12, 31, 12, 2025)])).toEqual([
    ...["Today", "conv_0", "Yesterday", "conv_1", "Previous 7 days", "conv_2"],
    ...["September 2026", "conv_3", "August 2026", "conv_4", "December 2025", "conv_5"],
  ]);
});

test("months are named in the locale, and future times count as today", () => {
  expect(shown([at(9, 25), at(3, 5)], NOON, "de")).toEqual(["Today", "conv_0", "März 2026", "conv_1"]);
});

test("pinned chats are first, in order, and each chat is numbered", () => {
  const rows = [row({ id: "conv_p", touchedAt: at(1, 1), pinned: true }), row({ id: "conv_a", touchedAt: NOON })];
  const lines = listLines(rows, NOON, true);
  expect(lines.map((line) => (line.kind === "heading" ? line.text : line.number))).toEqual(["Pinned", 1, "Today", 2]);
  expect(listLines(rows, NOON, false, "en").map((line) => line.kind === "heading" && line.text)).toContain(
    "January 2026",
  );
});

test("the current day changes at midnight, or when the machine wakes up", () => {
  vi.setSystemTime(at(9, 21, 23));
  const today = new CurrentDay();
  const heard: number[] = [];
  today.now.subscribe((now) => heard.push(now));
  vi.advanceTimersByTime(30 * 60_000);
  expect(heard).toHaveLength(1);
  vi.advanceTimersByTime(31 * 60_000);
  expect(heard).toHaveLength(2);
  expect(new Date(heard[1]!).getDate()).toBe(22);
  vi.setSystemTime(at(9, 25)); // and no timer ran
  document.dispatchEvent(new Event("visibilitychange"));
  expect(new Date(heard[2]!).getDate()).toBe(25);
  today.close();
  vi.advanceTimersByTime(5 * 86_400_000);
  expect(heard).toHaveLength(3);
});
