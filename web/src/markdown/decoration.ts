/** Prepare sanitized HTML for display: links that show where they lead, images that load on request, code and tables
 * that scroll, text without direction overrides, and consistent heading levels. */

import { externalUrl, disguisedHost } from "./link-targets";
import { CodeBlock } from "./code-block";
import { element } from "./dom";
import { safeText, safeProse, visibleCode } from "./safe-text";
import { imageElement } from "./images";
import { showFormula } from "./maths/typeset";
import { strings } from "../strings";

/** Prepare a fragment. Code blocks that grew out of `former` ones reuse them with their colours. */
export function decorate(fragment: DocumentFragment, former: CodeBlock[] = []): readonly ChildNode[] {
  for (const holder of fragment.querySelectorAll<HTMLElement>("[data-picture]")) decoratePicture(holder);
  for (const link of fragment.querySelectorAll("a")) decorateLink(link);
  for (const task of fragment.querySelectorAll<HTMLElement>("[data-task]")) decorateTask(task);
  for (const pre of fragment.querySelectorAll("pre")) {
    pre.replaceWith(codeBlock(pre.textContent ?? "", pre.getAttribute("data-language") ?? "", former).element);
  }
  for (const table of fragment.querySelectorAll("table")) {
    const label = strings.markdown.table;
    const scrolling = element("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": label });
    table.replaceWith(scrolling);
    scrolling.append(table);
  }
  for (const child of fragment.children) if (!child.hasAttribute("dir")) child.setAttribute("dir", "auto");
  cleanText(fragment);
  for (const formula of fragment.querySelectorAll<HTMLElement>("[data-maths]")) showFormula(formula);
  // White space between blocks comes from the HTML, not from the text.
  return [...fragment.childNodes].filter((node) => node instanceof Element || node.textContent?.trim() !== "");
}

function codeBlock(text: string, language: string, former: CodeBlock[]): CodeBlock {
  const same = former.shift();
  if (!same?.mayBecome(text, language)) return new CodeBlock(text, language);
  same.show(text, true);
  return same;
}

function decorateLink(link: HTMLAnchorElement): void {
  const url = externalUrl(link.getAttribute("href") ?? "");
  if (url === null) {
    link.replaceWith(...link.childNodes);
    return;
  }
  const title = link.getAttribute("title");
  link.setAttribute("href", url.href);
  link.setAttribute("target", "_blank");
  link.setAttribute("rel", "noopener noreferrer nofollow");
  if (title !== null) link.setAttribute("title", `${safeText(title)} (${url.host || url.pathname})`);
  if (link.childNodes.length === 0) link.append(url.host || url.pathname);
  const host = disguisedHost(safeText(link.textContent ?? ""), url);
  if (host !== null) link.append(element("bdi", { class: "true-host" }, ` (${host})`));
}

function decoratePicture(holder: HTMLElement): void {
  const shown = imageElement(holder.getAttribute("data-picture") ?? "", holder.getAttribute("data-alt") ?? "");
  // A button in a link would be two targets in one.
  const around = holder.closest("a");
  if (around && shown.querySelector("button")) around.after(shown);
  else holder.replaceWith(shown);
  holder.remove();
}

function decorateTask(task: HTMLElement): void {
  const isDone = task.getAttribute("data-task") === "done";
  const label = isDone ? strings.markdown.taskDone : strings.markdown.taskOpen;
  const box = element("span", { class: "task", role: "img", "aria-label": label }, isDone ? "☑" : "☐");
  task.closest("li")?.classList.add("task-item");
  task.replaceWith(box, " ");
}

function cleanText(fragment: DocumentFragment): void {
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node as Text;
    if (text.parentElement?.closest(".code-block")) continue;
    const clean = text.parentElement?.closest("code") ? visibleCode(text.data) : safeProse(text.data);
    if (clean !== text.data) text.data = clean;
  }
}

/** The title of the chat is above all headings. */
const TITLE_LEVEL = 1;

/** Set the level of each heading so that none is skipped, whatever its size. */
export function levelHeadings(text: Element): void {
  const around: number[] = [];
  for (const heading of text.querySelectorAll("h2, h3, h4, h5, h6")) {
    const size = Number(heading.tagName.slice(1));
    while ((around.at(-1) ?? 0) >= size) around.pop();
    around.push(size);
    const level = around.length + TITLE_LEVEL;
    if (level === size) heading.removeAttribute("aria-level");
    else heading.setAttribute("aria-level", String(level));
  }
}
