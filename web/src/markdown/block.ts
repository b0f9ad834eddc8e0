/** The DOM of one block. When a list or table grows, only changed items are rendered again. */

import { codeBlocksIn, type CodeBlock } from "./code-block";
import { decorate } from "./decoration";
import type { BlockHtml } from "./html";
import { sanitizeHtml } from "./sanitizer";

export class MarkdownBlock {
  readonly nodes: readonly ChildNode[];
  #markup: BlockHtml;

  /** `former`: code blocks that were shown there, to be reused. */
  constructor(markup: BlockHtml, former: CodeBlock[]) {
    this.#markup = markup;
    this.nodes = nodesOf(markup, markup.items, former);
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
    const added = itemContainer(nodesOf(markup, markup.items.slice(kept), codeBlocksIn(former)));
    for (const old of former) old.remove();
    if (added !== null) container.append(...added.children);
    this.#markup = markup;
    return true;
  }
}

function nodesOf({ start, end }: BlockHtml, items: readonly string[], former: CodeBlock[]): readonly ChildNode[] {
  return decorate(sanitizeHtml(`${start}${items.join("")}${end}`), former);
}

/** The element that holds the items. */
function itemContainer(nodes: readonly ChildNode[]): Element | null {
  const [outer] = nodes;
  if (!(outer instanceof Element)) return null;
  return outer.matches("ul, ol") ? outer : outer.querySelector("tbody");
}
