/** Make untrusted text safe to display: it can neither reorder the text around it nor hide parts of itself. */

/** Embeddings, overrides and isolates reorder all text after them, up to an end that may never come. */
const REORDERING = "\\u202a-\\u202e\\u2066-\\u2069";
/** Invisible characters, except joiners of emoji and scripts. */
const INVISIBLE =
  "\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u2028\\u2029" +
  "\\u2060-\\u2065\\u206a-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb";
/** Control characters; tabs and line ends are text. */
const CONTROLS = "\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f";
/** Tag characters, which no font shows. Flags of regions use them after a black flag. */
const TAGS = "[\\u{e0000}-\\u{e007f}]";
const STRAY_TAGS = `(?<!\\u{1f3f4}${TAGS}{0,9})${TAGS}`;

const HARMFUL = new RegExp(`[${REORDERING}${CONTROLS}]|${STRAY_TAGS}`, "gu");
const HARMFUL_OR_INVISIBLE = new RegExp(`[${REORDERING}${CONTROLS}${INVISIBLE}]|${STRAY_TAGS}`, "gu");
/** In code a joiner between ASCII characters is suspicious. */
const JOINERS = "[\\u200c-\\u200f\\u061c]";
const SUSPICIOUS_IN_CODE = new RegExp(
  `[${REORDERING}${CONTROLS}${INVISIBLE}]|${TAGS}|(?<=^|[\\x00-\\x7f])${JOINERS}|${JOINERS}(?=[\\x00-\\x7f]|$)`,
  "gu",
);
/** More combining marks than any script uses, which would cover the lines above and below. */
const STACKED_MARKS = /(\p{M}{6})\p{M}+/gu;

/** Make a title, a name or a line safe to stand within the page's own text. */
export function safeText(text: string): string {
  return withoutStackedMarks(text.replace(HARMFUL_OR_INVISIBLE, ""));
}

/** Make part of a longer text safe; harmless invisible characters stay. */
export function safeProse(text: string): string {
  return withoutStackedMarks(text.replace(HARMFUL, ""));
}

/** Return code with invisible characters written out. */
export function visibleCode(text: string): string {
  return text.replace(SUSPICIOUS_IN_CODE, (letter) => {
    const code = (letter.codePointAt(0) as number).toString(16).toUpperCase().padStart(4, "0");
    return `⟨U+${code}⟩`;
  });
}

function withoutStackedMarks(text: string): string {
  return text.replace(STACKED_MARKS, "$1");
}

/** Where a slice of a text may end: not between surrogates. */
export function sliceEnd(text: string, at: number): number {
  const last = text.charCodeAt(at - 1);
  return Math.min(text.length, last >= 0xd800 && last < 0xdc00 ? at + 1 : at);
}
