/** Where links lead, and whether their text pretends otherwise. */

const LEADING = new Set(["http:", "https:", "mailto:"]);
/** Something that a reader takes for a place: with a scheme, or letters around dots, up to a path. */
const LOOKS_LIKE_PLACE = /^(?:[a-z][a-z0-9+.-]*:\/\/|www\.)|^[^\s/@]+\.\p{L}{2,}(?:[:/?#]|$)/iu;

/** The address, if it leads out of the page: a place or a mailbox. Null for whatever does something else. */
export function externalUrl(address: string): URL | null {
  // What stands for itself alone: nothing is led by a part of an address to a place in this very page.
  if (!/^[a-z]+:/i.test(address)) return null;
  const url = parsed(address);
  if (url === null || !LEADING.has(url.protocol)) return null;
  return url.protocol === "mailto:" || url.hostname !== "" ? url : null;
}

/** What there is to say of a link whose words look like another place than it leads to; null if they do not. */
export function disguisedHost(words: string, url: URL): string | null {
  const said = words.trim();
  if (url.protocol === "mailto:") {
    const mailbox = decoded(url.pathname);
    return said.includes("@") && said.toLowerCase().replace(/^mailto:/, "") !== mailbox.toLowerCase() ? mailbox : null;
  }
  if (url.username !== "" || url.password !== "") return url.host;
  if (said.includes("@") && !LOOKS_LIKE_PLACE.test(said)) return url.host;
  if (!LOOKS_LIKE_PLACE.test(said)) return null;
  const place = parsed(/^[a-z][a-z0-9+.-]*:\/\//i.test(said) ? said : `https://${said}`);
  return place !== null && place.host.replace(/^www\./, "") === url.host.replace(/^www\./, "") ? null : url.host;
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
