/** Keep the scroll position: at the end while text streams in, or on the row that the user reads. */

import { signal, type ReadonlySignal } from "@preact/signals";

/** Pixels that are as good as the end. */
const NEAR = 48;
/** Pixels before the beginning at which more is read. */
const AHEAD = 900;

/** Milliseconds after which nothing moves any more. */
const REST = 200;

/** A row, and how far below the upper edge it is. */
interface Anchor {
  readonly row: string;
  readonly offset: number;
}

/** Browsers hold what is read by themselves, but not all of them, and not at the very beginning. */
export class ScrollPosition {
  readonly #isAtEnd = signal(true);
  readonly #hasNews = signal(false);
  readonly #wantsMore: () => void;
  readonly #isGrowing: () => boolean;
  #box: HTMLElement | null = null;
  #top = 0;
  /** How much there is below what is shown. */
  #left = 0;
  /** What is at the upper edge, and what is around it, for when that is gone. */
  #anchors: readonly Anchor[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `wantsMore`: called when the beginning of what is there comes near. `isGrowing`: whether what comes at the end is
   * news, and not something that was unfolded. */
  constructor(wantsMore: () => void, isGrowing: () => boolean) {
    this.#wantsMore = wantsMore;
    this.#isGrowing = isGrowing;
  }

  get isAtEnd(): ReadonlySignal<boolean> {
    return this.#isAtEnd;
  }

  /** Whether something came below what is shown. */
  get hasNews(): ReadonlySignal<boolean> {
    return this.#hasNews;
  }

  /** Watch a box that scrolls, and what is in it, until what is returned is called. */
  watch(box: HTMLElement, content: HTMLElement): () => void {
    this.#box = box;
    const scrolled = (): void => this.#scrolled();
    box.addEventListener("scroll", scrolled, { passive: true });
    // Before anything is painted: what is out of sight has an estimated height until it comes near.
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
    this.#anchors = [];
    this.#isAtEnd.value = true;
    this.#hasNews.value = false;
    this.keep();
  }

  /** Keep what is read where it is: the end, or what is at the upper edge. `isOther`: what was the last is gone, so
   * that there is another end now, which nobody was at. */
  keep(isOther = false): void {
    const box = this.#box;
    if (!box) return;
    if (this.#isAtEnd.peek() && !isOther) box.scrollTop = box.scrollHeight;
    else this.#hold(box);
    if (isOther) this.#look(box);
    else if (!this.#isAtEnd.peek() && leftOf(box) > this.#left + 1 && this.#isGrowing()) this.#hasNews.value = true;
    this.#note(box);
  }

  /** Read more, if the beginning of what is there is near. */
  more(): void {
    if (this.#box && this.#box.scrollTop < AHEAD) this.#wantsMore();
  }

  #scrolled(): void {
    const box = this.#box;
    if (!box) return;
    // Only who goes up leaves the end: it also moves away by itself, when more comes.
    if (leftOf(box) <= NEAR || box.scrollTop < this.#top - 1) this.#look(box);
    this.#note(box);
    this.#rest(box);
    this.more();
  }

  /** Note what is around: at once where somebody reads; at the end, which moves all the time, when that is at rest. */
  #rest(box: HTMLElement): void {
    clearTimeout(this.#timer);
    if (this.#isAtEnd.peek()) this.#timer = setTimeout(() => (this.#anchors = anchorsIn(box)), REST);
    else this.#anchors = anchorsIn(box);
  }

  #note(box: HTMLElement): void {
    this.#top = box.scrollTop;
    this.#left = leftOf(box);
  }

  #look(box: HTMLElement): void {
    this.#isAtEnd.value = leftOf(box) <= NEAR;
    if (this.#isAtEnd.peek()) this.#hasNews.value = false;
    this.#rest(box);
  }

  #hold(box: HTMLElement): void {
    const edge = box.getBoundingClientRect().top;
    for (const { row, offset } of this.#anchors) {
      const there = box.querySelector<HTMLElement>(`[data-row="${CSS.escape(row)}"]`);
      if (!there) continue;
      const moved = there.getBoundingClientRect().top - edge - offset;
      if (Math.abs(moved) >= 1) box.scrollTop += moved;
      return;
    }
  }
}

function leftOf({ scrollHeight, scrollTop, clientHeight }: HTMLElement): number {
  return scrollHeight - scrollTop - clientHeight;
}

/** The first row that can be seen, then the one before it and those behind it. */
function anchorsIn(box: HTMLElement): Anchor[] {
  const rows = [...box.querySelectorAll<HTMLElement>("[data-row]")];
  const edge = box.getBoundingClientRect().top;
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle] as HTMLElement).getBoundingClientRect().bottom <= edge) low = middle + 1;
    else high = middle;
  }
  return [low, low - 1, low + 1, low + 2].flatMap((place) => {
    const row = rows[place];
    return row ? [{ row: row.dataset["row"] as string, offset: row.getBoundingClientRect().top - edge }] : [];
  });
}
