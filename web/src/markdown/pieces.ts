/** What is shown of one part of a text. */

import { Block } from "./block";
import { CodeBlock } from "./code-block";
import { button, element } from "./element";
import { harmlessProse } from "./harmless";
import { blockMarkups, type Definitions } from "./markup";
import { comingPicture, picture } from "./pictures";
import type { Segment } from "./segments";

/** Of a longer text without a structure only so much is shown unless somebody wants all of it. */
const LONGEST_PLAIN = 20_000;
const SHOWN_OF_PLAIN = 5_000;
/** So much is laid out as one: to break a word of a million letters into lines takes the square of it. */
const PLAIN_PART = 5_000;

export interface Piece {
  readonly nodes: readonly ChildNode[];
  /** Whether definitions that come later may change it. */
  readonly mayRefer: boolean;
  /** Show this part instead, where it is the same one that has grown. False if it cannot, and has changed nothing. */
  become(segment: Segment, definitions: Definitions): boolean;
}

export function pieceOf(segment: Segment, definitions: Definitions): Piece {
  switch (segment.kind) {
    case "prose":
      return new ProsePiece(segment.source, definitions);
    case "code":
      return new CodePiece(segment);
    default:
      return new FixedPiece(segment);
  }
}

class ProsePiece implements Piece {
  #source: string;
  #blocks: readonly Block[];

  constructor(source: string, definitions: Definitions) {
    this.#source = source;
    this.#blocks = blockMarkups(source, definitions).map((markup) => new Block(markup));
  }

  get nodes(): readonly ChildNode[] {
    return this.#blocks.flatMap(({ nodes }) => nodes);
  }

  get mayRefer(): boolean {
    return this.#source.includes("[");
  }

  become(segment: Segment, definitions: Definitions): boolean {
    if (segment.kind !== "prose") return false;
    if (segment.source === this.#source && !this.mayRefer) return true;
    const markups = blockMarkups(segment.source, definitions);
    const differing = markups.findIndex((markup, index) => !this.#blocks[index]?.become(markup));
    const kept = this.#blocks.slice(0, differing < 0 ? markups.length : differing);
    const last = kept.flatMap(({ nodes }) => nodes).at(-1);
    if (last === undefined) return false;
    for (const { nodes } of this.#blocks.slice(kept.length)) for (const node of nodes) node.remove();
    const added = markups.slice(kept.length).map((markup) => new Block(markup));
    last.after(...added.flatMap(({ nodes }) => nodes));
    this.#blocks = [...kept, ...added];
    this.#source = segment.source;
    return true;
  }
}

class CodePiece implements Piece {
  readonly #block: CodeBlock;
  readonly mayRefer = false;

  constructor({ text, language, isOpen }: Segment & { kind: "code" }) {
    this.#block = new CodeBlock(text, language, isOpen);
  }

  get nodes(): readonly ChildNode[] {
    return [this.#block.element];
  }

  become(segment: Segment): boolean {
    if (segment.kind !== "code" || segment.language !== this.#block.language) return false;
    this.#block.show(segment.text, segment.isOpen);
    return true;
  }
}

/** What is made anew when it changes. */
class FixedPiece implements Piece {
  readonly #segment: Segment;
  readonly nodes: readonly ChildNode[];
  readonly mayRefer = false;

  constructor(segment: Segment) {
    this.#segment = segment;
    this.nodes = [segment.kind === "picture" ? pictured(segment) : plain(segment.source)];
  }

  become({ kind, source }: Segment): boolean {
    return kind === this.#segment.kind && source === this.#segment.source;
  }
}

function pictured({ address, alt }: Segment & { kind: "picture" }): HTMLElement {
  return element("p", { dir: "auto" }, address === null ? comingPicture(alt) : picture(address, alt));
}

function plain(source: string): HTMLElement {
  const text = harmlessProse(source.replace(/\n+$/, ""));
  if (text.length <= LONGEST_PLAIN) return element("div", { class: "plain", dir: "auto" }, ...partsOf(text));
  const place = element("div", { class: "plain", dir: "auto" }, ...partsOf(`${text.slice(0, SHOWN_OF_PLAIN)}…`));
  const all = `Show all ${text.length.toLocaleString("en")} characters`;
  place.append(button("show-all", all, () => place.replaceChildren(...partsOf(text))));
  return place;
}

function partsOf(text: string): Node[] {
  const parts: Node[] = [];
  for (let at = 0; at < text.length; at += PLAIN_PART) {
    parts.push(element("span", {}, text.slice(at, at + PLAIN_PART)));
  }
  return parts;
}
