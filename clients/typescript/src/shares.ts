/** Share links for visitors. */

import { freshKey, idOf } from "./ids.js";
import type { Pages } from "./pages.js";
import type { Share, Visit } from "./shapes.js";
import { listById, createOnce } from "./tokens.js";
import type { CallOptions, Wire } from "./wire.js";

/** A new link: to a scope, where each visitor is a fresh owner, or to a chat, read-only. */
export interface NewShare {
  scope?: string;
  chat?: string;
  name?: string;
  maxUses?: number;
  /** Seconds from now. */
  expiresIn?: number;
  perMinute?: number;
  models?: readonly string[];
  /** Seconds of each visit. */
  visitorExpiresIn?: number;
  /** Maximum tokens of one answer. */
  maxTokens?: number;
  /** Maximum answers of one request. */
  n?: number;
  /** Maximum open turns of all visitors together. */
  turns?: number;
  /** Maximum turns per minute of all visitors together. */
  turnsPerMinute?: number;
  /** Maximum bytes stored by all visitors together. */
  bytes?: number;
  /** Maximum chats of all visitors together. */
  chats?: number;
}

export class Shares {
  readonly #wire: Wire;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** Create a link. Its `code` is sent only once, so the request is not repeated after a lost response. `path` follows
   * the server's address in the link. */
  create(options: NewShare & CallOptions): Promise<Share & { readonly code: string; readonly path: string }> {
    return createOnce(this.#wire, "/api/shares", options);
  }

  /** List the links, the newest first. */
  list({ limit, signal }: CallOptions & { limit?: number } = {}): Pages<Share> {
    return listById(this.#wire, "/api/shares", {}, limit, signal);
  }

  /** Revoke a link, and the tokens of all its visitors. */
  async revoke(share: string, { signal }: CallOptions = {}): Promise<Share> {
    return this.#wire.json({ method: "DELETE", path: `/api/shares/${idOf("share", share)}` }, signal);
  }

  /** Exchange the code of a link for a token, once per visitor, however often it is repeated. Take the code from the
   * fragment of the address, and remove it there first. */
  exchange(code: string, { nonce = freshKey(), signal }: CallOptions & { nonce?: string } = {}): Promise<Visit> {
    return this.#wire.json({ path: "/api/shares/exchange", fields: { code, nonce } }, signal);
  }
}
