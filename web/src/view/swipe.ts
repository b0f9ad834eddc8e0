/** Swipes with one finger that open and close the list of chats on narrow screens. */

import { useEffect } from "preact/hooks";
import type { Drawer } from "./drawer";

/** Pixels at both sides of the window that belong to gestures of the browser and the system. */
const EDGE = 32;
/** Pixels that a finger has to move along the lines, and how much farther than across them. */
const DISTANCE = 56;
const RATIO = 2;

interface Point {
  readonly x: number;
  readonly y: number;
}

/** The direction of a movement, -1 to the left; 0: it is not a swipe, or not one yet. */
export function swipeDirection(from: Point, to: Point): -1 | 0 | 1 {
  const along = to.x - from.x;
  if (Math.abs(along) < DISTANCE || Math.abs(along) < RATIO * Math.abs(to.y - from.y)) return 0;
  return along < 0 ? -1 : 1;
}

/** Open and close the drawer by swipes. The drawer moves by its style, which has no motion where users want none. */
export function useSwipe(drawer: Drawer | null): void {
  useEffect(() => {
    if (drawer === null) return;
    let start: Point | null = null;
    const begin = (event: TouchEvent): void => {
      const [touch] = event.touches;
      start = touch && event.touches.length === 1 && maySwipe(event.target, touch.clientX) ? pointOf(touch) : null;
    };
    const move = ({ touches: [touch] }: TouchEvent): void => {
      const direction = start && touch ? swipeDirection(start, pointOf(touch)) : 0;
      if (direction === 0 || !drawer.isNarrow.value || !getSelection()?.isCollapsed) return;
      start = null;
      const isInwards = direction === (document.dir === "rtl" ? -1 : 1);
      if (isInwards && !drawer.isOver.value) drawer.open();
      else if (!isInwards && drawer.isOver.value) drawer.close();
    };
    const end = (): void => {
      start = null;
    };
    const stop = new AbortController();
    // Passive: scrolling never waits for these.
    const options = { passive: true, signal: stop.signal };
    addEventListener("touchstart", begin, options);
    addEventListener("touchmove", move, options);
    addEventListener("touchend", end, options);
    addEventListener("touchcancel", end, options);
    return () => stop.abort();
  }, [drawer]);
}

/** Whether a swipe may start here: not where a finger moves something else. */
function maySwipe(target: EventTarget | null, x: number): boolean {
  if (x < EDGE || x > innerWidth - EDGE || (visualViewport?.scale ?? 1) > 1) return false;
  for (let each = target as Element | null; each; each = each.parentElement) {
    if (each.matches("input, textarea, select, [contenteditable]")) return false;
    if (each.scrollWidth > each.clientWidth && /auto|scroll/.test(getComputedStyle(each).overflowX)) return false;
  }
  return true;
}

function pointOf({ clientX, clientY }: Touch): Point {
  return { x: clientX, y: clientY };
}
