/** Make MathML of LaTeX. Browsers show it without fonts and inline styles, which the page's policy forbids. Loaded on
 * demand, since KaTeX is large. */

import katex from "katex";
import { safeText } from "../safe-text";

/** Longer formulas stay as typed, and such of more elements or deeper nesting. */
const MAX_LENGTH = 2_000;
const MAX_ELEMENTS = 1_500;
const MAX_DEPTH = 40;
/** Definitions could multiply text, and would have no effect on other formulas; addresses and HTML have no place. */
const REFUSED = new RegExp(
  "\\\\(?:[egx]?def|(?:re)?newcommand|providecommand|(?:future)?let|global|long|" +
    "href|url|includegraphics|html\\w+)(?![A-Za-z])",
);

const OPTIONS = {
  output: "mathml",
  throwOnError: true,
  strict: "ignore",
  trust: false,
  maxExpand: 300,
  maxSize: 8,
} as const;

/** Elements, and the attributes that they may have. Colours are left out: they need not suit the theme. */
const ELEMENTS = new Set(
  (
    "math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle mpadded mphantom menclose msub msup msubsup munder " +
    "mover munderover mmultiscripts mprescripts none mtable mtr mtd"
  ).split(" "),
);
const ATTRIBUTES = new Set(
  (
    "display displaystyle scriptlevel mathsize mathvariant notation accent accentunder fence separator stretchy " +
    "symmetric largeop movablelimits form lspace rspace minsize maxsize linethickness width height depth voffset"
  ).split(" "),
);

/** Return the MathML of a formula, or null if it is invalid or too large. */
export function makeMathML(tex: string, isBlock: boolean): Element | null {
  if (tex.length > MAX_LENGTH || REFUSED.test(tex)) return null;
  const holder = document.createElement("span");
  try {
    katex.render(tex, holder, { ...OPTIONS, displayMode: isBlock });
  } catch {
    // Invalid, or nested too deeply.
    return null;
  }
  const math = holder.querySelector("math");
  const content = math?.querySelector(":scope > semantics > :first-child");
  if (!math || !content || holder.getElementsByTagName("*").length > MAX_ELEMENTS) return null;
  math.replaceChildren(content);
  return isAllowed(math, 0) ? math : null;
}

function isAllowed(each: Element, depth: number): boolean {
  return depth <= MAX_DEPTH && cleanElement(each) && [...each.children].every((child) => isAllowed(child, depth + 1));
}

/** Reduce an element to what browsers understand and the page allows. Returns false if it is not allowed. */
function cleanElement(each: Element): boolean {
  if (!ELEMENTS.has(each.localName)) return false;
  if (each.localName === "mtable") alignColumns(each);
  const variant = each.getAttribute("mathvariant");
  for (const { name } of [...each.attributes]) {
    if (!ATTRIBUTES.has(name) && !(name === "class" && each.localName === "mtd")) each.removeAttribute(name);
  }
  if (variant !== null && variant !== "normal") each.removeAttribute("mathvariant");
  for (const node of each.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) node.textContent = safeText(inVariant(node.textContent ?? "", variant));
  }
  return true;
}

/** Browsers ignore `columnalign` and `columnspacing`; the style sheet has classes for them. */
function alignColumns(table: Element): void {
  const sides = (table.getAttribute("columnalign") ?? "").split(" ");
  const isTight = /^0em( |$)/.test(table.getAttribute("columnspacing") ?? "");
  for (const row of table.children) {
    // Columns that KaTeX fills with its own style.
    for (const cell of [...row.children]) if (cell.hasAttribute("class") && !cell.firstChild) cell.remove();
    [...row.children].forEach((cell, index) => {
      const side = sides[index] ?? "center";
      const name = side === "left" || side === "right" ? `maths-${side}` : "";
      cell.setAttribute("class", isTight ? `${name} maths-tight`.trim() : name);
    });
  }
}

/** The first letters of an alphabet: A, a and 0; letters that have another place in Unicode. */
interface Alphabet {
  readonly upper: number;
  readonly lower: number;
  readonly digit?: number;
  readonly others?: Readonly<Record<string, string>>;
}

const ALPHABETS: Readonly<Record<string, Alphabet>> = {
  bold: { upper: 0x1d400, lower: 0x1d41a, digit: 0x1d7ce },
  italic: { upper: 0x1d434, lower: 0x1d44e, others: { h: "ℎ" } },
  "bold-italic": { upper: 0x1d468, lower: 0x1d482 },
  script: {
    upper: 0x1d49c,
    lower: 0x1d4b6,
    others: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  },
  fraktur: { upper: 0x1d504, lower: 0x1d51e, others: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" } },
  "double-struck": {
    upper: 0x1d538,
    lower: 0x1d552,
    digit: 0x1d7d8,
    others: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  },
  "sans-serif": { upper: 0x1d5a0, lower: 0x1d5ba, digit: 0x1d7e2 },
  "bold-sans-serif": { upper: 0x1d5d4, lower: 0x1d5ee, digit: 0x1d7ec },
  "sans-serif-italic": { upper: 0x1d608, lower: 0x1d622 },
  "sans-serif-bold-italic": { upper: 0x1d63c, lower: 0x1d656 },
  monospace: { upper: 0x1d670, lower: 0x1d68a, digit: 0x1d7f6 },
};

/** Write letters in a variant, with the characters that Unicode has for it: browsers ignore `mathvariant`. */
function inVariant(text: string, variant: string | null): string {
  const alphabet = ALPHABETS[variant ?? ""];
  if (alphabet === undefined) return text;
  return text.replace(/[A-Za-z\d]/g, (letter) => {
    const first = letter >= "a" ? alphabet.lower : letter >= "A" ? alphabet.upper : alphabet.digit;
    const from = letter >= "a" ? "a" : letter >= "A" ? "A" : "0";
    if (first === undefined) return letter;
    return alphabet.others?.[letter] ?? String.fromCodePoint(first + letter.charCodeAt(0) - from.charCodeAt(0));
  });
}
