/** Where what was sought stands in a text. */

import type { Mark } from "turnledger";
import { harmless } from "../markdown/safe-text";

export interface Piece {
  readonly text: string;
  readonly isMarked: boolean;
}

/** The text in pieces. Marks count whole characters, of which JavaScript sees some as two. */
export function piecesOf(snippet: string, marks: readonly Mark[]): Piece[] {
  const characters = Array.from(snippet);
  const pieces: Piece[] = [];
  const cut = (start: number, end: number, isMarked: boolean): void => {
    const text = harmless(characters.slice(start, end).join(""));
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
