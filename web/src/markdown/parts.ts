/** Where a part of a text may end: not between the two halves of a letter. */
export function endOfPart(text: string, at: number): number {
  const last = text.charCodeAt(at - 1);
  return Math.min(text.length, last >= 0xd800 && last < 0xdc00 ? at + 1 : at);
}
