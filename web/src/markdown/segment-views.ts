/** What is shown of one part of a text. */

import { Block } from "./block";
import { CodeBlock, codeBlocksIn } from "./code-block";
import { element } from "./dom";
import { blockMarkups, type Definitions } from "./html";
import { comingPicture, picture } from "./images";
import { PlainBlock } from "./plain-block";
import type { Segment } from "./segments";

export interface Piece {
  readonly nodes: readonly ChildNode[];
  /** Whether definitions that come later may change it. */
  readonly mayRefer: boolean;
  /** Show this part instead, where it is the same one that has grown. False if it cannot, and has changed nothing. */
  become(segment: Segment, definitions: Definitions): boolean;
}

/** `former`: what was shown there before. */
export function pieceOf(segment: Segment, definitions: Definitions, former: readonly ChildNode[] = []): Piece {
  switch (segment.kind) {
    case "prose":
      return new ProsePiece(segment.source, definitions, former);
    case "code":
      return new CodePiece(segment);
    case "picture":
      return new PicturePiece(segment);
    case "plain":
      return new PlainPiece(segment.source);
  }
}

class ProsePiece implements Piece {
  #source: string;
  #blocks: readonly Block[];

  constructor(source: string, definitions: Definitions, former: readonly ChildNode[] = []) {
    this.#source = source;
    const codes = codeBlocksIn(former);
    this.#blocks = blockMarkups(source, definitions).map((markup) => new Block(markup, codes));
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
    const former = this.#blocks.slice(kept.length).flatMap(({ nodes }) => nodes);
    const codes = codeBlocksIn(former);
    const added = markups.slice(kept.length).map((markup) => new Block(markup, codes));
    for (const node of former) if (!added.some(({ nodes }) => nodes.includes(node))) node.remove();
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

class PlainPiece implements Piece {
  readonly #block: PlainBlock;
  #source: string;
  readonly mayRefer = false;

  constructor(source: string) {
    this.#source = source;
    this.#block = new PlainBlock(source.trimEnd());
  }

  get nodes(): readonly ChildNode[] {
    return [this.#block.element];
  }

  become({ kind, source }: Segment): boolean {
    if (kind !== "plain" || !source.startsWith(this.#source)) return false;
    if (source.length > this.#source.length) this.#block.show(source.trimEnd());
    this.#source = source;
    return true;
  }
}

class PicturePiece implements Piece {
  readonly #segment: Segment & { kind: "picture" };
  readonly nodes: readonly ChildNode[];
  readonly mayRefer = false;

  constructor(segment: Segment & { kind: "picture" }) {
    const { address, alt } = segment;
    this.#segment = segment;
    this.nodes = [element("p", { dir: "auto" }, address === null ? comingPicture(alt) : picture(address, alt))];
  }

  become(segment: Segment): boolean {
    return segment.kind === "picture" && segment.alt === this.#segment.alt && segment.address === this.#segment.address;
  }
}
