/** The DOM of one segment of a text. */

import { markdownBlocks, type MarkdownBlock } from "./block";
import { CodeBlock, codeBlocksIn } from "./code-block";
import { element } from "./dom";
import { segmentToHtml, type MessageContext } from "./html";
import { pendingImageElement, imageElement } from "./images";
import { PlainBlock } from "./plain-block";
import type { Segment } from "./segments";

export interface SegmentView {
  readonly nodes: readonly ChildNode[];
  /** Whether later link definitions may change it. */
  readonly mayRefer: boolean;
  readonly formulas: number;
  /** Update to this segment if it is the same one, grown. Returns false if not, and changes nothing. */
  become(segment: Segment, context: MessageContext): boolean;
}

/** `former`: the nodes that were shown there. */
export function segmentView(
  segment: Segment,
  context: MessageContext,
  former: readonly ChildNode[] = [],
): SegmentView {
  switch (segment.kind) {
    case "prose":
      return new ProseView(segment.source, context, former);
    case "code":
      return new CodeBlockView(segment);
    case "picture":
      return new ImageSegmentView(segment);
    case "plain":
      return new PlainView(segment.source);
  }
}

class ProseView implements SegmentView {
  #source: string;
  #blocks: readonly MarkdownBlock[];
  #formulasBefore: number;
  formulas: number;

  constructor(source: string, context: MessageContext, former: readonly ChildNode[] = []) {
    this.#source = source;
    this.#formulasBefore = context.formulasBefore;
    const codes = codeBlocksIn(former);
    const { blocks, formulas } = segmentToHtml(source, context);
    this.#blocks = markdownBlocks(blocks, codes);
    this.formulas = formulas;
  }

  get nodes(): readonly ChildNode[] {
    return this.#blocks.flatMap(({ nodes }) => nodes);
  }

  get mayRefer(): boolean {
    return this.#source.includes("[");
  }

  become(segment: Segment, context: MessageContext): boolean {
    if (segment.kind !== "prose") return false;
    const isSame = segment.source === this.#source && context.formulasBefore === this.#formulasBefore;
    if (isSame && !this.mayRefer) return true;
    const { blocks: markups, formulas } = segmentToHtml(segment.source, context);
    const differing = markups.findIndex((markup, index) => !this.#blocks[index]?.become(markup));
    const kept = this.#blocks.slice(0, differing < 0 ? markups.length : differing);
    const last = kept.flatMap(({ nodes }) => nodes).at(-1);
    if (last === undefined) return false;
    const former = this.#blocks.slice(kept.length).flatMap(({ nodes }) => nodes);
    const codes = codeBlocksIn(former);
    const added = markdownBlocks(markups.slice(kept.length), codes);
    for (const node of former) if (!added.some(({ nodes }) => nodes.includes(node))) node.remove();
    last.after(...added.flatMap(({ nodes }) => nodes));
    this.#blocks = [...kept, ...added];
    this.#source = segment.source;
    this.#formulasBefore = context.formulasBefore;
    this.formulas = formulas;
    return true;
  }
}

class CodeBlockView implements SegmentView {
  readonly #block: CodeBlock;
  readonly mayRefer = false;
  readonly formulas = 0;

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

class PlainView implements SegmentView {
  readonly #block: PlainBlock;
  #source: string;
  readonly mayRefer = false;
  readonly formulas = 0;

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

class ImageSegmentView implements SegmentView {
  readonly #segment: Segment & { kind: "picture" };
  readonly nodes: readonly ChildNode[];
  readonly mayRefer = false;
  readonly formulas = 0;

  constructor(segment: Segment & { kind: "picture" }) {
    const { address, alt } = segment;
    this.#segment = segment;
    this.nodes = [
      element("p", { dir: "auto" }, address === null ? pendingImageElement(alt) : imageElement(address, alt)),
    ];
  }

  become(segment: Segment): boolean {
    return segment.kind === "picture" && segment.alt === this.#segment.alt && segment.address === this.#segment.address;
  }
}
