import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ARMED_TIME, ConfirmDelete } from "../../src/chats/confirm-delete";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("a second press on the same chat within the time confirms", () => {
  const confirmDelete = new ConfirmDelete();
  expect(confirmDelete.press("one")).toBe(false);
  expect(confirmDelete.press("other")).toBe(false);
  expect(confirmDelete.armed.value).toBe("other");
  expect(confirmDelete.press("other")).toBe(true);
  expect(confirmDelete.armed.value).toBeNull();
});

test("it disarms itself, some time after it was last armed", () => {
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
