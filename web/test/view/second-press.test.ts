import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ARMED_TIME, SecondPress } from "../../src/view/second-press";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("a second press on the same chat within the time confirms", () => {
  const pressed = new SecondPress();
  expect(pressed.press("one")).toBe(false);
  expect(pressed.press("other")).toBe(false);
  expect(pressed.armed.value).toBe("other");
  expect(pressed.press("other")).toBe(true);
  expect(pressed.armed.value).toBeNull();
});

test("it disarms itself, some time after it was last armed", () => {
  const pressed = new SecondPress();
  pressed.press("one");
  vi.advanceTimersByTime(ARMED_TIME - 1);
  pressed.disarm();
  pressed.press("one");
  vi.advanceTimersByTime(ARMED_TIME - 1);
  expect(pressed.armed.value).toBe("one");
  vi.advanceTimersByTime(1);
  expect(pressed.armed.value).toBeNull();
  expect(pressed.press("one")).toBe(false);
});
