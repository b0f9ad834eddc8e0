/** Unstructured text that may grow: all of it, or its beginning and a button. */

import { button, element } from "./dom";
import { sliceEnd, safeProse } from "./safe-text";
import { strings } from "../strings";

/** Longer text is cut off until the user asks for all of it. */
const MAX_LENGTH = 20_000;
const SHOWN_LENGTH = 5_000;
/** Laid out in chunks: breaking a word of a million letters into lines takes quadratic time. */
const CHUNK_LENGTH = 5_000;

export class PlainBlock {
  readonly element: HTMLElement;
  readonly #parts = element("div");
  readonly #all: HTMLButtonElement;
  #text = "";
  #isWhole = false;
  #ends: number[] = [];

  constructor(text: string) {
    this.#all = button("show-all", "", () => this.#showAll());
    this.element = element("div", { class: "plain", dir: "auto" }, this.#parts, this.#all);
    this.show(text);
  }

  /** Show this text, which extends the shown one. */
  show(text: string): void {
    this.#text = text;
    const isLong = text.length > MAX_LENGTH && !this.#isWhole;
    this.#all.hidden = !isLong;
    if (isLong) this.#all.textContent = strings.markdown.showAll(text.length);
    this.#write(isLong ? `${text.slice(0, sliceEnd(text, SHOWN_LENGTH))}…` : text);
  }

  #showAll(): void {
    this.#isWhole = true;
    this.show(this.#text);
  }

  /** Only the last chunk and later ones can have changed. */
  #write(text: string): void {
    while (this.#ends.length > 1 && (this.#ends.at(-2) as number) >= text.length) this.#drop();
    if (this.#ends.length > 0) this.#drop();
    for (let at = this.#ends.at(-1) ?? 0; at < text.length;) {
      const end = sliceEnd(text, at + CHUNK_LENGTH);
      this.#parts.append(element("span", {}, safeProse(text.slice(at, end))));
      this.#ends.push(end);
      at = end;
    }
  }

  #drop(): void {
    this.#ends.pop();
    this.#parts.lastChild?.remove();
  }
}
