/** The DOM of one block. When a list or table grows, only changed items are rendered again. */

import { codeBlocksIn, type CodeBlock } from "./code-block";
import { decorate } from "./decoration";
import type { BlockHtml } from "./html";
import { sanitizePieces } from "./sanitizer";

/** `former`: code blocks that were shown there, to be reused. */
export function markdownBlocks(markups: readonly BlockHtml[], former: CodeBlock[]): readonly MarkdownBlock[] {
  const fragments = sanitizePieces(markups.map(({ start, items, end }) => `${start}${items.join("")}${end}`));
  return markups.map((markup, index) => new MarkdownBlock(markup, decorate(fragments[index]!, former)));
}

export class MarkdownBlock {
  readonly nodes: readonly ChildNode[];
  #markup: BlockHtml;

  constructor(markup: BlockHtml, nodes: readonly ChildNode[]) {
    this.#markup = markup;
    this.nodes = nodes;
  }

  /** Update to this block if it is the same one, grown. Returns false if not, and changes nothing. */
  become(markup: BlockHtml): boolean {
    const { start, items } = this.#markup;
    const differing = markup.items.findIndex((item, index) => item !== items[index]);
    const kept = differing < 0 ? markup.items.length : differing;
    if (markup.start !== start || kept === 0) return false;
    if (kept === items.length && kept === markup.items.length) return true;
    const container = itemContainer(this.nodes);
    if (container === null || container.children.length !== items.length) return false;
    const former = [...container.children].slice(kept);
    const [added] = markdownBlocks([{ ...markup, items: markup.items.slice(kept) }], codeBlocksIn(former));
    for (const old of former) old.remove();
    container.append(...(itemContainer(added!.nodes)?.children ?? []));
    this.#markup = markup;
    return true;
  }
}

/** The element that holds the items. */
function itemContainer(nodes: readonly ChildNode[]): Element | null {
  const [outer] = nodes;
  if (!(outer instanceof Element)) return null;
  return outer.matches("ul, ol") ? outer : outer.querySelector("tbody");
}
