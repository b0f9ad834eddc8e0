import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ARMED_TIME, ConfirmDelete } from "../../src/chats/confirm-delete";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("it is done when it is said twice of the same, in time", () => {
  const confirmDelete = new ConfirmDelete();
  expect(confirmDelete.press("one")).toBe(false);
  expect(confirmDelete.press("other")).toBe(false);
  expect(confirmDelete.armed.value).toBe("other");
  expect(confirmDelete.press("other")).toBe(true);
  expect(confirmDelete.armed.value).toBeNull();
});

test("it disarms by itself, and a while after the last time it was armed", () => {
  const confirmDelete = new ConfirmDelete();
  confirmDelete.press("one");
  vi.advanceTimersByTime(ARMED_TIME - 1);
  confirmDelete.disarm();
  confirmDelete.press("one");
  vi.advanceTimersByTime(ARMED_TIME - 1);
  expect(confirmDelete.armed.value).toBe("one");
  vi.advanceTimersByTime(1);
  expect(confirmDelete.armed.value).toBeNull();
  expect(confirmDelete.press("one")).toBe(false);
});
