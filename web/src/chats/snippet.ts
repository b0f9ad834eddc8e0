/** Splits a search snippet into marked and unmarked parts. */

import type { Mark } from "turnledger";
import { safeText } from "../markdown/safe-text";

interface SnippetPart {
  readonly text: string;
  readonly isMarked: boolean;
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
