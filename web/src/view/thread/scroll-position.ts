/** Keep the scroll position: at the end while text streams in, or on the row that the user reads. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { isTextField } from "../../composer/shortcuts";

/** Pixels from the end that count as the end. */
const END_MARGIN = 48;
/** Pixels from the top at which older turns are read. */
const LOAD_MARGIN = 900;

/** Milliseconds until scrolling has settled. */
const SETTLE_TIME = 200;

/** A row, and its offset from the upper edge. */
interface Anchor {
  readonly row: string;
  readonly offset: number;
}

interface ScrollOptions {
  /** Called near the top, and near the end. */
  readonly onNearTop: () => void;
  readonly onNearEnd: () => void;
  /** Whether growth at the end is new content, not something unfolded. */
  readonly isGrowing: () => boolean;
  /** Whether this is not the end of the chat. */
  readonly hasNewer: () => boolean;
  readonly startsAt: "start" | "end";
}

/** Browsers anchor scrolling themselves, but not all of them, and not at the very top. */
export class ScrollPosition {
  readonly #isAtEnd: Signal<boolean>;
  readonly #hasNews = signal(false);
  readonly #onNearTop: () => void;
  readonly #onNearEnd: () => void;
  readonly #isGrowing: () => boolean;
  readonly #hasNewer: () => boolean;
  #box: HTMLElement | null = null;
  /** Whether it stays at the beginning, until the user scrolls. */
  #isAtStart: boolean;
  #top = 0;
  /** The distance to the end. */
  #distance = 0;
  /** The row at the upper edge, and its neighbours in case it disappears. */
  #anchors: readonly Anchor[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor({ onNearTop, onNearEnd, isGrowing, hasNewer, startsAt }: ScrollOptions) {
    this.#onNearTop = onNearTop;
    this.#onNearEnd = onNearEnd;
    this.#isGrowing = isGrowing;
    this.#hasNewer = hasNewer;
    this.#isAtStart = startsAt === "start";
    this.#isAtEnd = signal(startsAt === "end");
  }

  get isAtEnd(): ReadonlySignal<boolean> {
    return this.#isAtEnd;
  }

  /** Whether new content arrived below the visible part. */
  get hasNews(): ReadonlySignal<boolean> {
    return this.#hasNews;
  }

  /** Watch a scrolling box and its content, until the returned function is called. */
  watch(box: HTMLElement, content: HTMLElement): () => void {
    this.#box = box;
    const scrolled = (): void => this.#scrolled();
    box.addEventListener("scroll", scrolled, { passive: true });
    // Before painting: rows out of sight have an estimated height.
    const observer = new ResizeObserver(() => this.keep());
    observer.observe(content);
    observer.observe(box);
    this.keep();
    return () => {
      box.removeEventListener("scroll", scrolled);
      observer.disconnect();
      clearTimeout(this.#timer);
      this.#box = null;
    };
  }

  toEnd(): void {
    this.#isAtStart = false;
    this.#anchors = [];
    this.#isAtEnd.value = true;
    this.#hasNews.value = false;
    this.keep();
  }

  /** Keep the position: the end, or the row at the upper edge. `isOther`: the last row was replaced, so that there is
   * another end. */
  keep(isOther = false): void {
    const box = this.#box;
    if (!box) return;
    if (this.#isAtStart) this.#keepStart(box);
    else if (this.#isAtEnd.peek() && !isOther && !hasTextField(box)) box.scrollTop = box.scrollHeight;
    else this.#restoreAnchor(box);
    if (isOther) this.#updateEnd(box);
    else if (!this.#isAtEnd.peek() && distanceToEnd(box) > this.#distance + 1 && this.#isGrowing()) {
      this.#hasNews.value = true;
    }
    this.#remember(box);
  }

  #keepStart(box: HTMLElement): void {
    box.scrollTop = 0;
    this.#isAtEnd.value = this.#isEnd(box);
  }

  #isEnd(box: HTMLElement): boolean {
    return distanceToEnd(box) <= END_MARGIN && !this.#hasNewer();
  }

  /** Read older turns near the top, and later ones near the end. */
  more(): void {
    if (!this.#box) return;
    if (this.#box.scrollTop < LOAD_MARGIN) this.#onNearTop();
    if (distanceToEnd(this.#box) < LOAD_MARGIN) this.#onNearEnd();
  }

  #scrolled(): void {
    const box = this.#box;
    if (!box) return;
    if (box.scrollTop > 0) this.#isAtStart = false;
    // Only scrolling up leaves the end: growth moves it away, too.
    if (distanceToEnd(box) <= END_MARGIN || box.scrollTop < this.#top - 1) this.#updateEnd(box);
    this.#remember(box);
    this.#storeAnchors(box);
    this.more();
  }

  /** Store the anchors: at once away from the end; at the end, when scrolling has settled. */
  #storeAnchors(box: HTMLElement): void {
    clearTimeout(this.#timer);
    if (this.#isAtEnd.peek()) this.#timer = setTimeout(() => (this.#anchors = anchorsIn(box)), SETTLE_TIME);
    else this.#anchors = anchorsIn(box);
  }

  #remember(box: HTMLElement): void {
    this.#top = box.scrollTop;
    this.#distance = distanceToEnd(box);
  }

  #updateEnd(box: HTMLElement): void {
    this.#isAtEnd.value = this.#isEnd(box);
    if (this.#isAtEnd.peek()) this.#hasNews.value = false;
    this.#storeAnchors(box);
  }

  #restoreAnchor(box: HTMLElement): void {
    const edge = box.getBoundingClientRect().top;
    for (const { row, offset } of this.#anchors) {
      const anchor = box.querySelector<HTMLElement>(`[data-row="${CSS.escape(row)}"]`);
      if (!anchor) continue;
      const moved = anchor.getBoundingClientRect().top - edge - offset;
      if (Math.abs(moved) >= 1) box.scrollTop += moved;
      return;
    }
  }
}

/** Whether the user writes in the box: what is written stays in sight. */
function hasTextField(box: HTMLElement): boolean {
  const active = document.activeElement;
  return isTextField(active) && box.contains(active);
}

function distanceToEnd({ scrollHeight, scrollTop, clientHeight }: HTMLElement): number {
  return scrollHeight - scrollTop - clientHeight;
}

/** The first visible row, then the one before it and those after it. */
function anchorsIn(box: HTMLElement): Anchor[] {
  const rows = [...box.querySelectorAll<HTMLElement>("[data-row]")];
  const edge = box.getBoundingClientRect().top;
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle] as HTMLElement).getBoundingClientRect().bottom <= edge) low = middle + 1;
    else high = middle;
  }
  return [low, low - 1, low + 1, low + 2].flatMap((index) => {
    const row = rows[index];
    return row ? [{ row: row.dataset["row"] as string, offset: row.getBoundingClientRect().top - edge }] : [];
  });
}
