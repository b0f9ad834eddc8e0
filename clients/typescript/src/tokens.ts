/** Authentication tokens. All methods need a token with `admin`, except for revoking one's own. */

import { camels, snake } from "./field-names.js";
import { idOf } from "./ids.js";
import { queryOf } from "./chat.js";
import { Pages } from "./pages.js";
import type { Token, TokenScope } from "./shapes.js";
import type { CallOptions, Wire } from "./wire.js";

/** A new token. Fields that are left out are taken from the calling token. */
export interface NewToken {
  scopes: readonly TokenScope[];
  owner?: string;
  name?: string;
  chatScope?: string;
  chat?: string;
  models?: readonly string[];
  /** Seconds from now. */
  expiresIn?: number;
  /** Maximum tokens of one answer. */
  maxTokens?: number;
  /** Maximum answers of one request. */
  n?: number;
  /** Policies of its turns, unless a request chooses: `{ on_busy: "reject" }`. */
  defaults?: Readonly<Record<string, string>>;
}

/** The caller's rights, even if no token is needed. */
export type OwnToken = Pick<Token, "owner" | "scopes"> & { readonly keeps: boolean };

export class Tokens {
  readonly #wire: Wire;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** Create a token. Its text, `token`, is sent only once, so the request is not repeated after a lost response. */
  create(options: NewToken & CallOptions): Promise<Token & { readonly token: string }> {
    return createOnce(this.#wire, "/api/tokens", options);
  }

  /** List tokens, newest first. */
  list({ owner, limit, signal }: CallOptions & { owner?: string; limit?: number } = {}): Pages<Token> {
    return listById(this.#wire, "/api/tokens", { owner }, limit, signal);
  }

  /** Return the caller's token and rights, and whether the server stores their chats: those of a scope, if named. */
  own({ scope, signal }: CallOptions & { scope?: string } = {}): Promise<Partial<Token> & OwnToken> {
    return this.#wire.json({ path: "/api/tokens/self" + (scope ? queryOf({ scope }) : "") }, signal);
  }

  /** Revoke a token and all its descendants; `self`: your own. */
  async revoke(token: string, { signal }: CallOptions = {}): Promise<Token[]> {
    const path = `/api/tokens/${token === "self" ? token : idOf("tok", token)}`;
    return camels((await this.#wire.json<{ data: object[] }>({ method: "DELETE", path }, signal)).data);
  }
}

/** Create something with a secret that is sent only once. */
export function createOnce<Shape>(wire: Wire, path: string, { signal, ...fields }: CallOptions): Promise<Shape> {
  return wire.json({ path, fields: snake(fields), isOnce: true }, signal);
}

/** List entries, with the last id of a page as the cursor. */
export function listById<Entry extends { readonly id: string }>(
  wire: Wire,
  path: string,
  fields: object,
  total: number | undefined,
  signal: AbortSignal | undefined,
): Pages<Entry> {
  return new Pages(async (before, limit = 100) => {
    const pagePath = path + queryOf({ ...fields, before, limit });
    const data = camels<Entry>((await wire.json<{ data: object[] }>({ path: pagePath }, signal)).data);
    return { data, next: data.length < limit ? null : (data.at(-1)?.id ?? null) };
  }, total);
}
