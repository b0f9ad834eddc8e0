/** Splits a search snippet into marked and unmarked parts. */

import type { Mark } from "turnledger";
import { safeText } from "../markdown/safe-text";

interface SnippetPart {
  readonly text: string;
  readonly isMarked: boolean;
}

/** How many characters are shown before the first mark: a line of the list is short. */
const MAX_LEAD = 20;

/** As `snippetParts`, for one line: whole words just before the first mark, which would be cut off otherwise. */
export function lineParts(snippet: string, marks: readonly Mark[]): SnippetPart[] {
  const [lead, ...rest] = snippetParts(snippet, marks);
  if (!lead) return [];
  const characters = Array.from(lead.text);
  if (lead.isMarked || rest.length === 0 || characters.length <= MAX_LEAD) return [lead, ...rest];
  const end = characters.slice(-MAX_LEAD).join("");
  return [{ text: `…${end.slice(end.indexOf(" ") + 1) || end}`, isMarked: false }, ...rest];
}

/** Marks count code points, some of which take two UTF-16 units. */
export function snippetParts(snippet: string, marks: readonly Mark[]): SnippetPart[] {
  const characters = Array.from(snippet);
  const pieces: SnippetPart[] = [];
  const cut = (start: number, end: number, isMarked: boolean): void => {
    const text = safeText(characters.slice(start, end).join(""));
    if (text) pieces.push({ text, isMarked });
  };
  let at = 0;
  for (const [start, end] of [...marks].sort((one, other) => one[0] - other[0])) {
    cut(at, Math.max(at, start), false);
    cut(Math.max(at, start), end, true);
    at = Math.max(at, end);
  }
  cut(at, characters.length, false);
  return pieces;
}
