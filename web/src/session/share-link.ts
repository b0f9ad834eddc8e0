/** A share link: its code is exchanged for a visitor's token once, however often that is requested. */

import { errors, type Client } from "turnledger";
import { isLinkCode, fingerprintOf } from "./token-format";
import { STORAGE_PREFIX, browserStorage, tabStorage } from "../browser/storage";

/** The link last opened in this tab; or in this browser, for a tab that has opened none. */
const LAST_LINK = `${STORAGE_PREFIX}link`;

/** Take the code of a link from the address, where it must not stay visible; null if there is none. The name of a chat
 * stays. */
export function takeLinkCode(): string | null {
  const fragment = location.hash.slice(1);
  if (!fragment || fragment === "new" || fragment.startsWith("conv_")) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return fragment;
}

export class ShareLink {
  /** Names the link by the checksum of its code, which reveals nothing. */
  readonly slot: string;

  private constructor(slot: string) {
    this.slot = slot;
  }

  /** The link of this code, or the last opened one if there is no code; null if there is none. A code that was not
   * exchanged yet stays in the tab's storage: the page may be reloaded. */
  static of(code: string | null): ShareLink | null {
    if (code === null) {
      const slot = tabStorage().getItem(LAST_LINK) ?? browserStorage().getItem(LAST_LINK);
      return slot === null ? null : new ShareLink(slot);
    }
    if (!isLinkCode(code)) return null;
    const link = new ShareLink(`link-${fingerprintOf(code)}`);
    link.#setCode(code);
    return link;
  }

  /** The slot of the link that this tab opened before, if it is another one. */
  previousSlot(): string | null {
    const slot = tabStorage().getItem(LAST_LINK);
    return slot === this.slot ? null : slot;
  }

  /** Remember that this tab shows this link, also after a reload. */
  remember(): void {
    ignoringErrors(() => tabStorage().setItem(LAST_LINK, this.slot));
  }

  /** The server has accepted it: its code is no longer needed, and other tabs may show it. */
  accepted(): void {
    this.#settle();
    ignoringErrors(() => browserStorage().setItem(LAST_LINK, this.slot));
  }

  forget(): void {
    for (const storage of [tabStorage(), browserStorage()]) {
      if (storage.getItem(LAST_LINK) === this.slot) storage.removeItem(LAST_LINK);
      for (const name of [this.#code, this.#nonce]) storage.removeItem(name);
    }
  }

  /** Exchange the code for a token; null if the code is gone. Throws LinkNotValid, and errors that may pass. */
  async exchange(client: Client, signal: AbortSignal): Promise<string | null> {
    const code = tabStorage().getItem(this.#code);
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

  /** Until there is an answer, all tabs share one visit. */
  #visit(): string {
    const storage = browserStorage();
    const nonce = storage.getItem(this.#nonce) ?? crypto.getRandomValues(new Uint32Array(6)).join("-");
    ignoringErrors(() => storage.setItem(this.#nonce, nonce));
    return nonce;
  }

  #settle(): void {
    tabStorage().removeItem(this.#code);
    browserStorage().removeItem(this.#nonce);
  }

  #setCode(code: string): void {
    ignoringErrors(() => tabStorage().setItem(this.#code, code));
  }

  get #code(): string {
    return `${STORAGE_PREFIX}${this.slot}:code`;
  }

  get #nonce(): string {
    return `${STORAGE_PREFIX}${this.slot}:nonce`;
  }
}

/** Values that a full storage refuses are lost with the page. */
function ignoringErrors(step: () => void): void {
  try {
    step();
  } catch {
    // see above
  }
}
