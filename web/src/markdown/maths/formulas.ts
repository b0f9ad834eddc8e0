/** Find formulas in Markdown: `\(…\)`, `\[…\]`, `$$…$$` and `$…$`. */

export interface Formula {
  /** As typed, with its delimiters. */
  readonly source: string;
  /** Whether it stands on lines of its own. */
  readonly isBlock: boolean;
  /** Whether it is typeset: thousands would be laid out for seconds. */
  readonly isTypeset: boolean;
}

/** A text in which a placeholder stands for each formula, so that Markdown leaves their signs alone. */
export interface TextWithFormulas {
  readonly text: string;
  readonly formulas: readonly Formula[];
}

/** More formulas in a message stay as typed. */
const MAX_FORMULAS = 500;

/** Private characters around the index of a formula. */
const START = "\ue000";
const END = "\ue001";
const PLACEHOLDER = /\ue000(\d+)\ue001/g;
const BLOCK_BREAK = /(\ue000\d+\ue001)<br>/g;

/** Signs of code, escapes and dollars. */
const SIGN = /`+|\\[^]|\$+/g;
const ESCAPE = /\\[^]/g;
const EMPTY_LINE = /\n[ \t>]*\n/g;
const PUNCTUATION = /[!-/:-@[-`{-~]/g;
const QUOTATION = /^[ \t]*>[ \t>]*/;
const DOLLARS = /\$(?=[^\s$])((?:\\[^\n]|[^\\$`\n])*)(?<!\s)\$(?!\$|(?!(?:th|st|nd|rd|s)\b)[\w{])/y;
const OPERATOR = /[\\^_=+<>{}]/;
const WORD_OR_AMOUNT = /\p{L}{2}|^\d/u;

const CLOSERS: Readonly<Record<string, string>> = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };

/** Replace the formulas of a text by placeholders. `before`: how many formulas the message has before this text. */
export function extractFormulas(source: string, before = 0): TextWithFormulas {
  const { formulas, text } = scanFormulas(source, before);
  return { text, formulas };
}

/** The text with the end of it escaped if that is a formula which has not ended. */
export function withOpenFormulaAsText(source: string): string {
  const { openAt } = scanFormulas(source);
  if (openAt === null) return source;
  return source.slice(0, openAt) + source.slice(openAt).replace(PUNCTUATION, "\\$&");
}

/** Replace placeholders: `show` writes a formula. */
export function restoreFormulas(
  text: string,
  formulas: readonly Formula[],
  show: (formula: Formula) => string,
): string {
  if (formulas.length === 0) return text;
  return text.replace(PLACEHOLDER, (_, index: string) => show(formulas[Number(index)] as Formula));
}

/** The HTML without line breaks after formulas on lines of their own. */
export function withoutBreaks(html: string, formulas: readonly Formula[]): string {
  return html.replace(BLOCK_BREAK, (whole, placeholder: string) =>
    formulas[Number(placeholder.slice(1, -1))]?.isBlock ? placeholder : whole,
  );
}

interface Scan extends TextWithFormulas {
  /** Where a formula starts that has not ended. */
  readonly openAt: number | null;
}

function scanFormulas(source: string, before = 0): Scan {
  const none = { text: source, formulas: [], openAt: null };
  if (!/\\[([]|\$/.test(source) || source.includes(START)) return none;
  const formulas: Formula[] = [];
  const find = new Finder(source);
  let text = "";
  let done = 0;
  let openAt: number | null = null;
  SIGN.lastIndex = 0;
  for (let sign = SIGN.exec(source); sign; sign = SIGN.exec(source)) {
    const at = sign.index;
    const opener = sign[0];
    if (opener.startsWith("`")) {
      SIGN.lastIndex = find.codeEnd(at, opener.length);
      continue;
    }
    const end = opener === "$" ? dollarsEnd(source, at) : find.formulaEnd(at, opener);
    if (end === null) {
      if (opener in CLOSERS && openAt === null && find.isOpen(at, opener)) openAt = at;
      continue;
    }
    const typed = withoutQuotation(source, at, end);
    text += `${source.slice(done, at)}${START}${formulas.length}${END}`;
    const isBlock = opener === "\\[" || opener === "$$";
    formulas.push({ source: typed, isBlock, isTypeset: before + formulas.length < MAX_FORMULAS });
    done = SIGN.lastIndex = end;
  }
  return { text: text + source.slice(done), formulas, openAt };
}

/** Finds the ends of code and formulas. Each position is searched for once, so that time is linear. */
class Finder {
  readonly #source: string;
  /** The next closer by its opener, and the next empty line, at or after the last position asked for. */
  readonly #next = new Map<string, number>();
  /** Lengths of runs of backticks that have no second one. */
  readonly #single = new Set<number>();

  constructor(source: string) {
    this.#source = source;
  }

  /** Where the code ends that these backticks start, or these end if it is none. */
  codeEnd(at: number, length: number): number {
    const start = at + length;
    if (this.#single.has(length)) return start;
    const run = /`+/g;
    run.lastIndex = start;
    for (let found = run.exec(this.#source); found; found = run.exec(this.#source)) {
      if (found[0].length === length) return run.lastIndex;
    }
    this.#single.add(length);
    return start;
  }

  /** Where the formula ends that starts here, or null if none does. */
  formulaEnd(at: number, opener: string): number | null {
    if (!(opener in CLOSERS)) return null;
    const start = at + opener.length;
    const closer = this.#closer(start, opener);
    if (closer === Infinity || closer > this.#emptyLine(at)) return null;
    const tex = this.#source.slice(start, closer);
    const isMaths = tex.trim() !== "" && !tex.includes("`");
    if (opener === "\\[") return isMaths && this.#source[closer + 2] !== "(" ? closer + 2 : null;
    if (opener === "$$" && (isMoney(tex) || /[\w(]/.test(this.#source[at - 1] ?? ""))) return null;
    return isMaths ? closer + 2 : null;
  }

  /** Whether the formula that starts here may end after the text. */
  isOpen(at: number, opener: string): boolean {
    return this.#closer(at + opener.length, opener) === Infinity && this.#emptyLine(at) === Infinity;
  }

  #closer(from: number, opener: string): number {
    return this.#at(opener, from, () => {
      if (opener === "$$") {
        const found = this.#source.indexOf("$$", from);
        return found < 0 ? Infinity : found;
      }
      ESCAPE.lastIndex = from;
      for (let found = ESCAPE.exec(this.#source); found; found = ESCAPE.exec(this.#source)) {
        if (found[0] === CLOSERS[opener]) return found.index;
      }
      return Infinity;
    });
  }

  #emptyLine(from: number): number {
    return this.#at("\n", from, () => {
      EMPTY_LINE.lastIndex = from;
      return EMPTY_LINE.exec(this.#source)?.index ?? Infinity;
    });
  }

  #at(name: string, from: number, search: () => number): number {
    const known = this.#next.get(name);
    if (known !== undefined && known >= from) return known;
    const found = search();
    this.#next.set(name, found);
    return found;
  }
}

/** Where the formula between single dollars ends. What may be money or the name of a variable is none. */
function dollarsEnd(source: string, at: number): number | null {
  if (/\w/.test(source[at - 1] ?? "")) return null;
  DOLLARS.lastIndex = at;
  const found = DOLLARS.exec(source);
  return found && !isMoney(found[1] as string) ? DOLLARS.lastIndex : null;
}

/** Whether this is prose between two prices. */
function isMoney(tex: string): boolean {
  return /\s/.test(tex) && !OPERATOR.test(tex) && WORD_OR_AMOUNT.test(tex);
}

/** The text of a formula, without the signs of a quotation at the starts of its lines. */
function withoutQuotation(source: string, at: number, end: number): string {
  const typed = source.slice(at, end);
  if (!typed.includes("\n") || !QUOTATION.test(source.slice(source.lastIndexOf("\n", at - 1) + 1, at))) return typed;
  return typed.split("\n").map((line, index) => (index === 0 ? line : line.replace(QUOTATION, ""))).join("\n");
}
