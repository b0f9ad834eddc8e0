import { expect, it } from "vitest";
import { swipeDirection } from "../../src/view/swipe";

it.each([
  ["to the right", 60, 10, 1],
  ["to the left", -60, -10, -1],
  ["too short", 50, 0, 0],
  ["a scroll", 60, 200, 0],
  ["slanting", 60, 40, 0],
])("a movement %s", (_, x, y, direction) => expect(swipeDirection({ x: 0, y: 0 }, { x, y })).toBe(direction));
