/** A code block that may grow: its language, a copy button, and the code. */

import { copyButton } from "./clipboard";
import { button, element } from "./dom";
import { sliceEnd, visibleCode } from "./safe-text";
import type { HighlightSpans } from "./highlight/highlight";
import { highlightInWorker } from "./highlight/worker-client";
import { grammarName, languageLabel } from "./highlight/languages";
import { strings } from "../strings";

/** Longer code is not highlighted. */
const MAX_HIGHLIGHTED = 20_000;
/** Longer code is cut off until the user asks for all of it. */
const MAX_SHOWN = 50_000;
/** Laid out in chunks, so that growth at the end does not touch earlier ones. */
const CHUNK_LENGTH = 4_000;
/** Milliseconds between highlights of a growing block. */
const HIGHLIGHT_INTERVAL = 300;

const blocks = new WeakMap<Element, CodeBlock>();

/** Return the code blocks among these nodes, and in them. */
export function codeBlocksIn(nodes: readonly ChildNode[]): CodeBlock[] {
  const elements = nodes.flatMap((node) => {
    if (!(node instanceof Element)) return [];
    return node.matches(".code-block") ? [node] : [...node.querySelectorAll(".code-block")];
  });
  return elements.flatMap((each) => blocks.get(each) ?? []);
}

export class CodeBlock {
  readonly element: HTMLElement;
  readonly #code = element("code");
  readonly #all: HTMLButtonElement;
  readonly #language: string;
  /** The original text, and the shown one. */
  #text = "";
  #shown = "";
  #isWhole = false;
  #isOpen = false;
  #highlighted: string | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(text: string, language: string, isOpen = false) {
    this.#language = language;
    const label = visibleCode(languageLabel(language));
    const name = language === "" ? strings.markdown.code : strings.markdown.codeIn(label);
    const pre = element("pre", { tabindex: "0", role: "group", "aria-label": name }, this.#code);
    const copy = copyButton(
      name,
      () => this.#text,
      () => this.#code,
    );
    const head = element(
      "div",
      { class: "code-head" },
      element("span", { class: "code-language" }, label),
      wrapButton(name, pre),
      copy,
    );
    this.#all = button("show-all", "", () => this.#showAll());
    this.element = element("div", { class: "code-block", dir: "ltr" }, head, pre, this.#all);
    blocks.set(this.element, this);
    this.show(text, isOpen);
  }

  /** Whether this may be the same block after it has grown. */
  mayBecome(text: string, language: string): boolean {
    return language === this.#language && text.startsWith(this.#text);
  }

  get language(): string {
    return this.#language;
  }

  /** Show this text; the part that is shown already stays. */
  show(text: string, isOpen: boolean): void {
    if (text === this.#text && isOpen === this.#isOpen && this.#code.firstChild) return;
    this.#isOpen = isOpen;
    this.#text = text;
    const limit = this.#isWhole ? Infinity : MAX_SHOWN;
    this.#all.hidden = text.length <= limit;
    if (text.length > limit) this.#all.textContent = strings.markdown.showAll(text.length);
    this.#write(visibleCode(text.slice(0, sliceEnd(text, limit))));
    this.#highlight();
  }

  #showAll(): void {
    this.#isWhole = true;
    this.#all.hidden = true;
    this.#write(visibleCode(this.#text));
    this.#code.parentElement?.focus();
  }

  #write(shown: string): void {
    const kept = shown.startsWith(this.#shown) ? this.#shown.length : 0;
    if (kept === 0) this.#code.replaceChildren();
    this.#shown = shown;
    this.#append(shown.slice(kept));
  }

  /** Append text, in chunks that end with a line. */
  #append(text: string): void {
    let rest = text;
    while (rest !== "") {
      let part = this.#code.lastElementChild;
      const length = part?.textContent?.length ?? 0;
      if (part === null || (length >= CHUNK_LENGTH && part.textContent?.endsWith("\n"))) {
        part = this.#code.appendChild(element("span", { class: "code-part" }));
      }
      const end = rest.indexOf("\n", Math.max(0, CHUNK_LENGTH - (part.textContent?.length ?? 0) - 1)) + 1;
      const now = end === 0 ? rest : rest.slice(0, end);
      rest = rest.slice(now.length);
      const last = part.lastChild;
      if (last instanceof Text) last.appendData(now);
      else part.append(now);
    }
  }

  /** Highlight: at once if complete, periodically while it grows. */
  #highlight(): void {
    const name = grammarName(this.#language);
    if (name === null || this.#shown.length > MAX_HIGHLIGHTED || this.#shown === this.#highlighted) return;
    if (this.#isOpen && this.#timer !== undefined) return;
    if (!this.#isOpen) clearTimeout(this.#timer);
    const text = this.#shown;
    this.#highlighted = text;
    void highlightInWorker(text, name).then((marks) => {
      if (marks !== null && this.#shown.startsWith(text)) this.#mark(marks);
    });
    if (!this.#isOpen) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#highlight();
    }, HIGHLIGHT_INTERVAL);
  }

  /** Colour the code; unchanged spans stay. */
  #mark(marks: HighlightSpans): void {
    const shown = this.#shown;
    const parts = [...this.#code.children];
    let at = 0;
    let index = 0;
    let used = 0;
    for (const part of parts) {
      const end = at + (part.textContent?.length ?? 0);
      const nodes: (Node | string)[] = [];
      while (at < end) {
        const mark = marks[index];
        const left = mark === undefined ? end - at : mark.length - used;
        const length = Math.min(left, end - at);
        const text = shown.slice(at, at + length);
        nodes.push(mark?.kind ? element("span", { class: mark.kind }, text) : text);
        at += length;
        used += length;
        if (mark !== undefined && used >= mark.length) {
          index += 1;
          used = 0;
        }
      }
      replaceFrom(part, nodes);
    }
  }
}

function wrapButton(name: string, pre: HTMLElement): HTMLElement {
  const wrap = button("code-button", strings.markdown.wrap, () => {
    wrap.setAttribute("aria-pressed", String(pre.classList.toggle("wrapped")));
  });
  wrap.setAttribute("aria-label", strings.markdown.wrapBlock(name));
  wrap.setAttribute("aria-pressed", "false");
  return wrap;
}

/** Replace the nodes of a chunk, except equal ones at its start. */
function replaceFrom(part: Element, nodes: readonly (Node | string)[]): void {
  let kept = 0;
  for (const old of [...part.childNodes]) {
    const next = nodes[kept];
    const isSame =
      typeof next === "string" ? old instanceof Text && old.data === next : (next?.isEqualNode(old) ?? false);
    if (!isSame) break;
    kept += 1;
  }
  while (part.childNodes.length > kept) part.lastChild?.remove();
  part.append(...nodes.slice(kept));
}
