/** Names of files that are made of what people write: harmless on every system. */

const LONGEST = 60;

/** A name made of the letters, digits, spaces and dashes of a title. */
export function fileNameOf(title: string | null, ending: string): string {
  const bare = (title ?? "").normalize("NFC").replace(/[^\p{L}\p{M}\p{N}\- ]+/gu, " ");
  const letters = Array.from(bare.split(/\s+/).filter(Boolean).join(" "));
  const text = letters.slice(0, LONGEST).join("").replace(/^[- ]+|[- ]+$/g, "");
  const isReserved = /^(con|prn|aux|nul|com\d|lpt\d)$/i.test(text);
  return `${!text || isReserved ? "chat" : text}.${ending}`;
}
