/** Links that let visitors in. */

import { freshKey, idOf } from "./ids.js";
import type { Pages } from "./pages.js";
import type { Share, Visit } from "./shapes.js";
import { listById, createOnce } from "./tokens.js";
import type { CallOptions, Wire } from "./wire.js";

/** What a link is to be: to a scope, where each visitor is a fresh owner; or to a chat, to read it. */
export interface NewShare {
  scope?: string;
  chat?: string;
  name?: string;
  maxUses?: number;
  /** Seconds from now. */
  expiresIn?: number;
  perMinute?: number;
  models?: readonly string[];
  /** Seconds that each visitor may stay. */
  visitorExpiresIn?: number;
  /** Tokens that one answer to a visitor may have. */
  maxTokens?: number;
  /** Answers that one request of a visitor may ask for. */
  n?: number;
  /** Turns that all visitors together may have open. */
  turns?: number;
  /** Turns that all visitors together may ask for within a minute. */
  turnsPerMinute?: number;
  /** Bytes that all visitors together may store. */
  bytes?: number;
  /** Chats that all visitors together may have. */
  chats?: number;
}

export class Shares {
  readonly #wire: Wire;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** Make a link. Its `code` is told now and never again, so a request whose answer was lost is not repeated. `path` is
   * what follows the address of the server in the link. */
  create(options: NewShare & CallOptions): Promise<Share & { readonly code: string; readonly path: string }> {
    return createOnce(this.#wire, "/api/shares", options);
  }

  /** The links, the newest first. */
  list({ limit, signal }: CallOptions & { limit?: number } = {}): Pages<Share> {
    return listById(this.#wire, "/api/shares", {}, limit, signal);
  }

  /** End a link, and the tokens of all who came by it. */
  async revoke(share: string, { signal }: CallOptions = {}): Promise<Share> {
    return this.#wire.json({ method: "DELETE", path: `/api/shares/${idOf("share", share)}` }, signal);
  }

  /** Follow a link: exchange its code for a token, once for each visitor, however often that is asked for. Take the
   * code from the fragment of the address, and remove it there before anything else. */
  exchange(code: string, { nonce = freshKey(), signal }: CallOptions & { nonce?: string } = {}): Promise<Visit> {
    return this.#wire.json({ path: "/api/shares/exchange", said: { code, nonce } }, signal);
  }
}
