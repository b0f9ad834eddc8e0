/** Where somebody reads: at the end, and stays there while more comes; or further up, and nothing moves under his eyes. */

import { signal, type ReadonlySignal } from "@preact/signals";

/** Pixels that are as good as the end. */
const NEAR = 48;
/** Pixels before the beginning at which more is read. */
const AHEAD = 900;

/** A row, and how far below the upper edge it is. */
interface Anchor {
  readonly name: string;
  readonly offset: number;
}

export class Scrolling {
  readonly #isAtEnd = signal(true);
  readonly #hasNews = signal(false);
  readonly #wantsMore: () => void;
  #box: HTMLElement | null = null;
  #observer: ResizeObserver | null = null;
  #top = 0;

  /** `wantsMore`: called when the beginning of what is there comes near. */
  constructor(wantsMore: () => void) {
    this.#wantsMore = wantsMore;
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
    this.#observer = new ResizeObserver(() => this.#follow());
    this.#observer.observe(content);
    this.#observer.observe(box);
    this.#follow();
    return () => {
      box.removeEventListener("scroll", scrolled);
      this.#observer?.disconnect();
    };
  }

  toEnd(): void {
    this.#isAtEnd.value = true;
    this.#hasNews.value = false;
    this.#follow();
  }

  /** What is at the upper edge, to be held there while the rows change; null at the end. */
  anchor(): Anchor | null {
    const box = this.#box;
    if (!box || this.#isAtEnd.peek()) return null;
    const edge = box.getBoundingClientRect().top;
    for (const row of box.querySelectorAll<HTMLElement>("[data-row]")) {
      const { top, bottom } = row.getBoundingClientRect();
      if (bottom > edge) return { name: row.dataset["row"] as string, offset: top - edge };
    }
    return null;
  }

  /** Have it where it was. */
  hold(anchor: Anchor | null): void {
    const box = this.#box;
    if (!box || !anchor) return this.#follow();
    const row = box.querySelector<HTMLElement>(`[data-row="${CSS.escape(anchor.name)}"]`);
    if (!row) return;
    const moved = row.getBoundingClientRect().top - box.getBoundingClientRect().top - anchor.offset;
    if (Math.abs(moved) >= 1) box.scrollTop += moved;
    this.#top = box.scrollTop;
  }

  /** More came at the end. */
  grew(): void {
    if (!this.#isAtEnd.peek()) this.#hasNews.value = true;
  }

  /** Read more, if the beginning of what is there is near. */
  look(): void {
    if (this.#box && this.#box.scrollTop < AHEAD) this.#wantsMore();
  }

  #scrolled(): void {
    const box = this.#box;
    if (!box) return;
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (left <= NEAR) {
      this.#isAtEnd.value = true;
      this.#hasNews.value = false;
    } else if (box.scrollTop < this.#top - 1) {
      // Only who goes up has left the end: it also moves away by itself, when more comes.
      this.#isAtEnd.value = false;
    }
    this.#top = box.scrollTop;
    this.look();
  }

  #follow(): void {
    const box = this.#box;
    if (!box || !this.#isAtEnd.peek()) return;
    box.scrollTop = box.scrollHeight;
    this.#top = box.scrollTop;
  }
}
