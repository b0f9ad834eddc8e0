/** Markdown shown in an element, as it stands or as it comes. */

import { defined, type Definitions } from "./markup";
import { pieceOf, type Piece } from "./pieces";
import { Segments, type Segment } from "./segments";

/** For so long a text is worked at before others get their turn, in milliseconds. */
const PATIENCE = 40;

export class ShownText {
  readonly #place: HTMLElement;
  #text = "";
  #segments = new Segments();
  #definitions: Definitions = new Map();
  /** Pieces that are settled, and the number of them that are shown for parts which are not. */
  #pieces: Piece[] = [];
  #kept: Segment[] = [];
  #unsettled = 0;
  /** Settled parts that are not shown yet. */
  #waiting: Segment[] = [];
  #frame: number | null = null;
  #isGrowing = true;

  constructor(place: HTMLElement) {
    this.#place = place;
  }

  /** Show a text, at once; while it grows, with the next frame. */
  show(text: string, isGrowing: boolean): void {
    if (!text.startsWith(this.#text)) this.#forget();
    const added = text.slice(this.#text.length);
    const isFirst = this.#text === "";
    this.#text = text;
    this.#take(added);
    this.#isGrowing = isGrowing;
    if (isFirst || !isGrowing) this.draw();
    else this.#frame ??= requestAnimationFrame(() => this.draw());
  }

  /** Show what has come, and all of it if there is time without end. */
  draw(patience = PATIENCE): void {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
    const until = performance.now() + patience;
    while (this.#waiting.length > 0) {
      if (performance.now() > until) {
        this.#frame = requestAnimationFrame(() => this.draw());
        return;
      }
      const segment = this.#waiting.shift() as Segment;
      this.#put(this.#kept.length, segment);
      this.#kept.push(segment);
      this.#unsettled = Math.max(0, this.#unsettled - 1);
    }
    this.#drawRest();
  }

  close(): void {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
  }

  #drawRest(): void {
    const rest = this.#segments.rest;
    if (!this.#isGrowing) for (const { source } of rest) this.#define(source);
    rest.forEach((segment, index) => this.#put(this.#kept.length + index, segment));
    for (const piece of this.#pieces.splice(this.#kept.length + rest.length)) for (const node of piece.nodes) node.remove();
    this.#unsettled = rest.length;
  }

  #take(added: string): void {
    const settled = this.#segments.take(added);
    this.#waiting.push(...settled);
    for (const { kind, source } of settled) if (kind === "prose") this.#define(source);
  }

  /** Take in what is defined there; whatever was shown without it is shown anew. */
  #define(source: string): void {
    let isNew = false;
    for (const [name, definition] of defined(source)) {
      if (this.#definitions.has(name)) continue;
      this.#definitions.set(name, definition);
      isNew = true;
    }
    if (!isNew) return;
    this.#kept.forEach((segment, index) => {
      if (this.#pieces[index]?.mayRefer) this.#put(index, segment);
    });
  }

  /** Show a part at its place, by the piece that is there if that is the same one. */
  #put(index: number, segment: Segment): void {
    const there = this.#pieces[index];
    if (there?.become(segment, this.#definitions)) return;
    const piece = pieceOf(segment, this.#definitions);
    for (const node of there?.nodes ?? []) node.remove();
    this.#pieces[index] = piece;
    const next = this.#pieces.slice(index + 1).find(({ nodes }) => nodes.length > 0)?.nodes[0] ?? null;
    for (const node of piece.nodes) this.#place.insertBefore(node, next);
  }

  #forget(): void {
    this.#text = "";
    this.#segments = new Segments();
    this.#definitions = new Map();
    this.#pieces = [];
    this.#kept = [];
    this.#unsettled = 0;
    this.#waiting = [];
    this.#place.replaceChildren();
  }
}
