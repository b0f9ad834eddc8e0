/** Split growing text, line by line, into independent segments.
 *
 * Where a segment ends depends only on the complete lines up to there. So it never changes, however the text continues,
 * and a growing text costs as much as its last segment. Only link definitions reach across segments.
 */

export type Segment =
  | { readonly kind: "prose"; readonly source: string }
  /** A fenced block. `isOpen`: its end has not arrived. */
  | {
      readonly kind: "code";
      readonly source: string;
      readonly text: string;
      readonly language: string;
      readonly isOpen: boolean;
    }
  /** An image embedded in the text; `address` is null until it is complete. */
  | { readonly kind: "picture"; readonly source: string; readonly alt: string; readonly address: string | null }
  /** Text that is too long or too deeply nested to be parsed as Markdown. */
  | { readonly kind: "plain"; readonly source: string };

/** Longer lines are not parsed as Markdown. */
const LONGEST_LINE = 20_000;
/** Longer paragraphs and tables are cut. */
const LONGEST_PROSE = 8_000;
const LONGEST_TABLE = 60_000;
/** Longer lists continue as another list, so that the growing part stays short. */
const LONG_LIST = 6_000;
/** The same for lists of more markers, since one line may have many; and prose of twice as many is cut. */
const LARGE_LIST = 500;
/** Deeper nesting is shown as plain text. */
const MAX_DEPTH = 20;
const MAX_INDENT = 60;
/** Longer words are not parsed: searching them for links and emphasis takes quadratic time. */
const LONGEST_WORD = 2_000;
/** How many cells a text may have. A short row is filled up to the columns of its table, so that a few letters make
 * many cells. */
const MAX_CELLS = 20_000;
/** Tables of more cells continue as another table, so that the browser gets a turn. */
const LARGE_TABLE = 2_000;
/** How many delimiters a paragraph may have: matching them takes quadratic time. */
const MAX_DELIMITERS = 600;
const MAX_TABLE_DELIMITERS = 2_000;

const FENCE = /^(`{3,}(?=[^`]*$)|~{3,})[ \t]*([^\n]*)/;
const MARKER = /^[ \t]*(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)/;
const HEADING = /^#{1,6}(?:[ \t]|$)/;
const RULE = /^[ \t]*([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const NESTING = /^(?:[ \t]*(?:>|[-+*](?=[ \t]|$)|\d{1,9}[.)](?=[ \t]|$)))+/;
const DELIMITER = /\*+|~+|_+|!/g;
const BULLET = /^ {0,3}[-+*][ \t]/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*\|[ \t|:-]*$/;
const PICTURE = /^!\[([^\]\n]{0,1000})\]\((data:image\/[a-z+.-]{1,20};base64,[A-Za-z0-9+/]+={0,2})\)[ \t]*$/;
const PICTURE_START = /^!\[([^\]\n]{0,1000})\]\(data:image\/[a-z+.-]{1,20};base64,[A-Za-z0-9+/]*={0,2}\)?[ \t]*$/;

interface Fence {
  readonly mark: string;
  readonly language: string;
  readonly from: number;
}

export class Segments {
  #text = "";
  /** Whether the text so far ends in a carriage return, which may be half of a line ending. */
  #endsInReturn = false;
  /** Start of the part that is not settled. */
  #start = 0;
  /** End of the complete lines that were scanned. */
  #scanned = 0;
  #fence: Fence | null = null;
  #settled: Segment[] = [];
  // Of the prose since #start:
  #isAfterBlank = false;
  #holdsList = false;
  #isPlain = false;
  #delimiters = 0;
  /** The markers of lists and quotes. */
  #markers = 0;
  /** The columns of its table; 0 if it has none. */
  #columns = 0;
  /** The header of that table; and of the table that this prose continues. */
  #header = "";
  #continued = "";
  #cellsBefore = 0;
  /** Of the whole text. */
  #cells = 0;

  /** Add text, and return the segments that it settles. */
  take(added: string): readonly Segment[] {
    this.#text += this.#normalized(added);
    for (;;) {
      const end = this.#text.indexOf("\n", this.#scanned);
      if (end < 0) break;
      this.#line(this.#scanned, end);
      this.#scanned = end + 1;
    }
    return this.#taken();
  }

  /** The segments of the unsettled part, as if the text ended here. */
  get rest(): readonly Segment[] {
    const line = this.#text.slice(this.#scanned);
    if (this.#fence) {
      const isEnd = isEndOf(this.#fence, line);
      return [this.#code(this.#fence, isEnd ? this.#scanned : this.#text.length, !isEnd)];
    }
    const picture = PICTURE_START.exec(line);
    if (picture) {
      const address = PICTURE.exec(line)?.[2] ?? null;
      return [...this.#prose(this.#scanned), { kind: "picture", source: line, alt: picture[1] as string, address }];
    }
    if (line.length > LONGEST_LINE) return [...this.#prose(this.#scanned), { kind: "plain", source: line }];
    const opening = line.length < 100 ? FENCE.exec(line) : null;
    if (opening)
      return [
        ...this.#prose(this.#scanned),
        this.#code(this.#opened(opening, this.#text.length), this.#text.length, true),
      ];
    if (line !== "" && this.#isNew(line, MARKER.test(line), this.#scanned)) {
      return [
        ...this.#prose(this.#scanned),
        { kind: isTooComplex(line) || countDelimiters(line) > MAX_DELIMITERS ? "plain" : "prose", source: line },
      ];
    }
    const isDense = this.#delimiters + countDelimiters(line) > this.#maxDelimiters;
    return this.#prose(this.#text.length, isDense || isTooComplex(line));
  }

  /** Normalize line endings, wherever the text was cut. */
  #normalized(added: string): string {
    if (added === "") return added;
    const whole = this.#endsInReturn && added.startsWith("\n") ? added.slice(1) : added;
    this.#endsInReturn = added.endsWith("\r");
    return whole.includes("\r") || whole.includes("\0")
      ? whole.replace(/\r\n?/g, "\n").replaceAll("\0", "\ufffd")
      : whole;
  }

  #taken(): readonly Segment[] {
    const settled = this.#settled;
    this.#settled = [];
    // Drop the settled part: each added piece would copy all of it.
    this.#text = this.#text.slice(this.#start);
    this.#scanned -= this.#start;
    if (this.#fence) this.#fence = { ...this.#fence, from: this.#fence.from - this.#start };
    this.#start = 0;
    return settled;
  }

  #line(from: number, to: number): void {
    const line = this.#text.slice(from, to);
    if (this.#fence) return this.#lineOfCode(this.#fence, line, to);
    if (line.length > LONGEST_LINE) return this.#longLine(line, from, to);
    const opening = FENCE.exec(line);
    if (opening) {
      this.#cut(from);
      this.#fence = this.#opened(opening, to + 1);
    } else if (line.trim() === "") {
      this.#isAfterBlank = true;
      this.#delimiters = 0;
      this.#columns = 0;
    } else {
      this.#lineOfProse(line, from, to);
    }
  }

  #longLine(line: string, from: number, to: number): void {
    const picture = PICTURE.exec(line);
    this.#cut(from);
    if (picture)
      this.#put({ kind: "picture", source: line, alt: picture[1] as string, address: picture[2] as string }, to + 1);
    else this.#put({ kind: "plain", source: line }, to + 1);
  }

  #lineOfCode(fence: Fence, line: string, to: number): void {
    if (!isEndOf(fence, line)) return;
    this.#put(this.#code(fence, to - line.length, false), to + 1);
    this.#fence = null;
  }

  #lineOfProse(line: string, from: number, to: number): void {
    const picture = PICTURE.exec(line);
    if (picture) {
      this.#cut(from);
      this.#put({ kind: "picture", source: line, alt: picture[1] as string, address: picture[2] as string }, to + 1);
      return;
    }
    const isMarker = MARKER.test(line);
    if (this.#isNew(line, isMarker, from)) this.#cut(from);
    if (BULLET.test(line)) this.#delimiters = 0;
    this.#lineOfTable(line, from);
    this.#markers += nesting(line).length;
    this.#delimiters += countDelimiters(line);
    this.#isPlain ||= isTooComplex(line) || this.#delimiters > this.#maxDelimiters;
    this.#holdsList ||= isMarker;
    this.#isAfterBlank = false;
    const isLarge = this.#columns > 0 && this.#cells - this.#cellsBefore > LARGE_TABLE;
    const longest = this.#columns > 0 ? LONGEST_TABLE : LONGEST_PROSE;
    if (isLarge || this.#markers > 2 * LARGE_LIST || to - this.#start > longest) {
      this.#cut(to + 1, this.#header);
    }
  }

  /** Count the cells of a line in a table. The rest of a table with too many of them is shown as text. */
  #lineOfTable(line: string, from: number): void {
    if (from === this.#start && !line.includes("|")) this.#continued = "";
    const columns = tableColumns(line);
    if (this.#columns === 0 && columns > 0) {
      this.#columns = columns;
      const above = this.#text.slice(this.#text.lastIndexOf("\n", from - 2) + 1, from);
      this.#header = NESTING.test(above) || NESTING.test(line) ? "" : `${above}${line}\n`;
    }
    this.#cells += this.#columns;
    if (this.#columns === 0 || this.#cells <= MAX_CELLS) return;
    this.#cut(from);
    this.#isPlain = true;
  }

  /** Whether no earlier block can continue in this line. */
  #isNew(line: string, isMarker: boolean, from: number): boolean {
    if (line.startsWith(" ") || line.startsWith("\t")) return false;
    if (HEADING.test(line)) return true;
    if (this.#holdsList && isMarker) return from - this.#start > LONG_LIST || this.#markers > LARGE_LIST;
    return this.#isAfterBlank;
  }

  get #maxDelimiters(): number {
    return this.#columns > 0 ? MAX_TABLE_DELIMITERS : MAX_DELIMITERS;
  }

  #opened(opening: RegExpExecArray, from: number): Fence {
    const language = /^[\w+#.-]{1,40}/.exec(opening[2] as string)?.[0].toLowerCase() ?? "";
    return { mark: opening[1] as string, language, from };
  }

  #code(fence: Fence, to: number, isOpen: boolean): Segment {
    const source = this.#text.slice(this.#start, to);
    const text = this.#text.slice(fence.from, to);
    // The last line ending is not part of the code.
    return {
      kind: "code",
      source,
      text: text.endsWith("\n") ? text.slice(0, -1) : text,
      language: fence.language,
      isOpen,
    };
  }

  #prose(to: number, isPlain = false): readonly Segment[] {
    const source = this.#text.slice(this.#start, to);
    if (source.trim() === "") return [];
    return [{ kind: this.#isPlain || isPlain ? "plain" : "prose", source: this.#continued + source }];
  }

  #put(segment: Segment, next: number): void {
    this.#settled.push(segment);
    this.#start = next;
  }

  /** `continued`: the header of a table that goes on after the cut. */
  #cut(at: number, continued = ""): void {
    this.#settled.push(...this.#prose(at));
    this.#start = at;
    this.#isAfterBlank = false;
    this.#holdsList = false;
    this.#isPlain = false;
    this.#delimiters = 0;
    this.#markers = 0;
    this.#header = this.#continued = continued;
    this.#columns = continued === "" ? 0 : this.#columns;
    this.#cellsBefore = this.#cells;
    this.#cells += this.#columns;
  }
}

function isEndOf(fence: Fence, line: string): boolean {
  if (line.length > LONGEST_LINE) return false;
  const mark = line.trim();
  return (
    mark.length >= fence.mark.length &&
    !/^(?: {4}|\s*\t)/.test(line) &&
    mark === (fence.mark[0] as string).repeat(mark.length)
  );
}

/** The columns of a table whose header ends with this line; 0: it does not end one. */
function tableColumns(line: string): number {
  const rule = TABLE_RULE.test(line) ? line : line.replace(NESTING, "").trimStart();
  return TABLE_RULE.test(rule) ? rule.split("|").filter((cell) => cell.trim() !== "").length : 0;
}

/** Whether a line is nested deeper in quotes and lists than people write, or has a longer word. */
function isTooComplex(line: string): boolean {
  return isTooNested(line) || (line.length > LONGEST_WORD && line.split(/[^!-~]+/).some(isTooLong));
}

function isTooLong({ length }: string): boolean {
  return length > LONGEST_WORD;
}

function isTooNested(line: string): boolean {
  const markers = nesting(line);
  return markers.length > MAX_DEPTH || (markers !== "" && line.search(/[^ \t]/) > MAX_INDENT);
}

/** The markers of lists and quotes at the start of a line. */
function nesting(line: string): string {
  return RULE.test(line) ? "" : (NESTING.exec(line)?.[0] ?? "").replace(/[ \t\d]+/g, "");
}

function countDelimiters(line: string): number {
  return line.match(DELIMITER)?.length ?? 0;
}
