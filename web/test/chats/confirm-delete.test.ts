import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ARMED, Arming } from "../../src/chats/confirm-delete";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("it is done when it is said twice of the same, in time", () => {
  const arming = new Arming();
  expect(arming.say("one")).toBe(false);
  expect(arming.say("other")).toBe(false);
  expect(arming.armed.value).toBe("other");
  expect(arming.say("other")).toBe(true);
  expect(arming.armed.value).toBeNull();
});

test("it disarms by itself, and a while after the last time it was armed", () => {
  const arming = new Arming();
  arming.say("one");
  vi.advanceTimersByTime(ARMED - 1);
  arming.disarm();
  arming.say("one");
  vi.advanceTimersByTime(ARMED - 1);
  expect(arming.armed.value).toBe("one");
  vi.advanceTimersByTime(1);
  expect(arming.armed.value).toBeNull();
  expect(arming.say("one")).toBe(false);
});
