/** Following a link: its code is exchanged for a visitor's token, once, however often that is asked for. */

import { errors, type Client } from "turnledger";
import { isCode, markOf } from "./token-format";
import { PREFIX, storageHere, storageOfTab } from "../browser/storage";

/** Which link this tab has followed; and this browser, for a tab that has followed none. */
const LAST = `${PREFIX}link`;

/** Take the code of a link from the address, where it must not stay to be seen, copied or sent on. Null: there is none.
 * What names a chat stays. */
export function takeCode(): string | null {
  const fragment = location.hash.slice(1);
  if (!fragment || fragment === "new" || fragment.startsWith("conv_")) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return fragment;
}

export class Link {
  /** By which it is known here: the end of its code, which is a checksum and gives nothing away. */
  readonly place: string;

  private constructor(place: string) {
    this.place = place;
  }

  /** The link of this code; the one that was followed last, if there is no code; null, if there is no such link. The
   * code of one that was not exchanged yet stays with this tab until it is: the page may be loaded again. */
  static of(code: string | null): Link | null {
    if (code === null) {
      const place = storageOfTab().getItem(LAST) ?? storageHere().getItem(LAST);
      return place === null ? null : new Link(place);
    }
    if (!isCode(code)) return null;
    const link = new Link(`link-${markOf(code)}`);
    link.#setCode(code);
    return link;
  }

  /** The one that this tab has followed before, if it is another one. */
  former(): string | null {
    const place = storageOfTab().getItem(LAST);
    return place === this.place ? null : place;
  }

  /** This is the one that the tab shows, also when it is loaded again. */
  remember(): void {
    tried(() => storageOfTab().setItem(LAST, this.place));
  }

  /** It has let somebody in: its code is needed no more, and other tabs may show it, too. */
  entered(): void {
    this.#settle();
    tried(() => storageHere().setItem(LAST, this.place));
  }

  /** Forget that it was followed. */
  forget(): void {
    for (const storage of [storageOfTab(), storageHere()]) {
      if (storage.getItem(LAST) === this.place) storage.removeItem(LAST);
      for (const name of [this.#code, this.#nonce]) storage.removeItem(name);
    }
  }

  /** Exchange the code for a token; null where the code is not there any more. Throws LinkNotValid, and what passes. */
  async exchange(client: Client, signal: AbortSignal): Promise<string | null> {
    const code = storageOfTab().getItem(this.#code);
    if (code === null) return null;
    try {
      const { token } = await client.shares.exchange(code, { nonce: this.#visit(), signal });
      this.#settle();
      return token;
    } catch (problem) {
      if (problem instanceof errors.LinkNotValid) this.#settle();
      throw problem;
    }
  }

  /** Until there is an answer, it is one and the same visit, in whichever tab. */
  #visit(): string {
    const storage = storageHere();
    const nonce = storage.getItem(this.#nonce) ?? crypto.getRandomValues(new Uint32Array(6)).join("-");
    tried(() => storage.setItem(this.#nonce, nonce));
    return nonce;
  }

  #settle(): void {
    storageOfTab().removeItem(this.#code);
    storageHere().removeItem(this.#nonce);
  }

  #setCode(code: string): void {
    tried(() => storageOfTab().setItem(this.#code, code));
  }

  get #code(): string {
    return `${PREFIX}${this.place}:code`;
  }

  get #nonce(): string {
    return `${PREFIX}${this.place}:nonce`;
  }
}

/** What a full storage does not take is lost with the page. */
function tried(step: () => void): void {
  try {
    step();
  } catch {
    // as said
  }
}
