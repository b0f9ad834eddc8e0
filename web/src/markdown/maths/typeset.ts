/** Show formulas. KaTeX is loaded with the first one; until then, and where it fails, a formula stays as typed. */

import { element } from "../dom";
import { strings } from "../../strings";

/** Milliseconds of typesetting per frame. */
const FRAME_BUDGET = 12;
/** Milliseconds after which a failed load is tried again, with the next formula. */
const RETRY_AFTER = 10_000;

type MakeMathML = typeof import("./katex").makeMathML;

let makeMathML: MakeMathML | null = null;
let isLoading = false;
let mayLoadFrom = 0;
/** Formulas to typeset, in order. */
let waiting = new Set<HTMLElement>();
let frame: number | null = null;
let spent = 0;

/** Typeset the formula in an element, at once or later. */
export function showFormula(formula: HTMLElement): void {
  const isBlock = formula.dataset["maths"] === "block";
  formula.removeAttribute("data-maths");
  formula.className = isBlock ? "maths maths-block" : "maths";
  formula.dir = "ltr";
  if (makeMathML !== null && waiting.size === 0 && spent < FRAME_BUDGET) {
    typeset(formula, makeMathML);
    if (frame === null) frame = requestAnimationFrame(typesetWaiting);
    return;
  }
  waiting.add(formula);
  if (makeMathML === null) void load();
  else frame ??= requestAnimationFrame(typesetWaiting);
}

async function load(): Promise<void> {
  if (isLoading || performance.now() < mayLoadFrom) return;
  isLoading = true;
  try {
    ({ makeMathML } = await import("./katex"));
    typesetWaiting();
  } catch {
    // The server cannot be reached, or serves another version of the page.
    mayLoadFrom = performance.now() + RETRY_AFTER;
  } finally {
    isLoading = false;
  }
}

/** Typeset for the time of a frame. Formulas that were replaced since are dropped. */
function typesetWaiting(): void {
  frame = null;
  spent = 0;
  if (makeMathML === null) return;
  for (const formula of waiting) {
    if (spent >= FRAME_BUDGET) break;
    waiting.delete(formula);
    if (formula.isConnected) typeset(formula, makeMathML);
  }
  if (waiting.size > 0) frame = requestAnimationFrame(typesetWaiting);
}

function typeset(formula: HTMLElement, make: MakeMathML): void {
  const start = performance.now();
  const source = formula.textContent ?? "";
  const length = source.startsWith("$") && !source.startsWith("$$") ? 1 : 2;
  const math = make(source.slice(length, -length).trim(), formula.classList.contains("maths-block"));
  if (math !== null) {
    const box = element("span", { class: "maths-box" }, math);
    formula.replaceChildren(box, element("span", { class: "maths-source" }, source));
    overflow.observe(box);
  }
  spent += performance.now() - start;
}

/** A formula that is wider than the text scrolls, and then takes the focus. */
const overflow = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth <= target.clientWidth) {
      for (const name of ["tabindex", "role", "aria-label"]) target.removeAttribute(name);
    } else {
      target.setAttribute("tabindex", "0");
      target.setAttribute("role", "group");
      target.setAttribute("aria-label", strings.markdown.formula);
    }
  }
});

/** Copy formulas as they were typed, not as a letter per line. */
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  const isSelected = (box: Element): boolean => selection?.containsNode(box, true) ?? false;
  if (!selection || ![...document.querySelectorAll(".maths-box")].some(isSelected)) return;
  const { classList } = document.documentElement;
  classList.add("copying-maths");
  event.clipboardData?.setData("text/plain", selection.toString());
  classList.remove("copying-maths");
  event.preventDefault();
});
