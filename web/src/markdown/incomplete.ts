/** Markdown that is still growing, without the incomplete syntax of its last line: an unmatched sign would flicker, and
 * a line of dashes would turn the line above into a heading. */

import { withOpenFormulaAsText } from "./maths/formulas";

/** The start of syntax that shows nothing yet. */
const INVISIBLE_START = /^[ \t>]*(?:-+|=+|[-+*]|\d{1,9}[.)]?|#{1,6}|`{1,2}|~{1,2}|\|[ \t|:-]*)[ \t]*$/;
const OPEN_LINK = /(!?)\[([^[\]]*)\]\([^()]*$/;
const CODE = /(?<!`)(`+)(?!`)[^`]*\1(?!`)/g;

/** The source without incomplete syntax in its last line. */
export function withoutIncomplete(typed: string): string {
  const source = withOpenFormulaAsText(typed);
  const start = source.lastIndexOf("\n") + 1;
  const line = source.slice(start);
  if (line === "") return source;
  if (INVISIBLE_START.test(line) && !isTableRow(source, start)) return source.slice(0, start);
  const linked = line.replace(OPEN_LINK, (_, isPicture: string, label: string) => (isPicture === "!" ? "" : label));
  return source.slice(0, start) + withClosed(linked);
}

/** A row of dashes below a row of cells belongs to a table, not to a heading. */
function isTableRow(source: string, start: number): boolean {
  return source.slice(source.lastIndexOf("\n", start - 2) + 1, start).includes("|");
}

/** Close code or strong text that this line opens. */
function withClosed(line: string): string {
  const outside = line.replace(CODE, "");
  const open = /(?<!\\)`+/.exec(outside);
  if (open) return outside.endsWith(open[0]) ? line.slice(0, -open[0].length) : line + open[0];
  const isOdd = (outside.split("**").length - 1) % 2 === 1;
  if (!isOdd) return line;
  const trimmed = line.trimEnd().replace(/\*$/, (star) => (line.endsWith("**") ? star : ""));
  return trimmed.endsWith("**") ? trimmed.slice(0, -2) : `${trimmed}**`;
}
