/** Where links lead, and whether their text pretends otherwise. */

const EXTERNAL_PROTOCOLS = new Set(["http:", "https:", "mailto:"]);
/** Text that looks like an address: with a scheme, or letters around dots, up to a path. */
const LOOKS_LIKE_ADDRESS = /^(?:[a-z][a-z0-9+.-]*:\/\/|www\.)|^[^\s/@]+\.\p{L}{2,}(?:[:/?#]|$)/iu;

const EMBEDDED_ADDRESS = /(?:https?:\/\/|www\.)\S+/i;
/** Signs that look like those of an address, beyond those that NFKC and URLs replace. */
const LOOKALIKES: readonly (readonly [RegExp, string])[] = [
  [/[\u0701\u0702\u06d4\u3002\ua4f8\ua60e\u{10a50}\u{1d16d}]/gu, "."],
  [/[\u2044\u2215\u2571\u29f8]/g, "/"],
  [/[\u02d0\u0589\u2236\ua789]/g, ":"],
];

/** The URL, if it leads to another site or a mailbox; null for any other address. */
export function externalUrl(address: string): URL | null {
  // Absolute addresses only: a relative one would lead into this page.
  if (!/^[a-z]+:/i.test(address)) return null;
  const url = parsed(address);
  if (url === null || !EXTERNAL_PROTOCOLS.has(url.protocol)) return null;
  return url.protocol === "mailto:" || url.hostname !== "" ? url : null;
}

/** The real host of a link whose text looks like another address; null if it does not. */
export function disguisedHost(label: string, url: URL): string | null {
  const text = LOOKALIKES.reduce((shown, [signs, sign]) => shown.replace(signs, sign), label.normalize("NFKC")).trim();
  if (url.protocol === "mailto:") {
    const mailbox = decoded(url.pathname);
    return text.includes("@") && text.toLowerCase().replace(/^mailto:/, "") !== mailbox.toLowerCase() ? mailbox : null;
  }
  if (url.username !== "" || url.password !== "") return url.host;
  if (text.includes("@") && !LOOKS_LIKE_ADDRESS.test(text)) return url.host;
  // A browser shows such a host in letters of any script, which may look like others.
  if (/(?:^|\.)xn--/.test(url.hostname)) return text.includes(url.host) ? null : url.host;
  const address = LOOKS_LIKE_ADDRESS.test(text) ? text : EMBEDDED_ADDRESS.exec(text)?.[0];
  if (address === undefined) return null;
  const shown = parsed(/^[a-z][a-z0-9+.-]*:\/\//i.test(address) ? address : `https://${address}`);
  return shown !== null && shown.host.replace(/^www\./, "") === url.host.replace(/^www\./, "") ? null : url.host;
}

function parsed(address: string): URL | null {
  try {
    return new URL(address);
  } catch {
    return null;
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
