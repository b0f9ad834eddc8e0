/** Tokens: who is let in, and to what. All of this needs a token with `admin`, but for giving up one's own. */

import { camels, snake } from "./field-names.js";
import { idOf } from "./ids.js";
import { queryOf } from "./chat.js";
import { Pages } from "./pages.js";
import type { Token, TokenScope } from "./shapes.js";
import type { CallOptions, Wire } from "./wire.js";

/** What a token is to be. What is left out is as the one has it that makes it. */
export interface NewToken {
  scopes: readonly TokenScope[];
  owner?: string;
  name?: string;
  chatScope?: string;
  chat?: string;
  models?: readonly string[];
  /** Seconds from now. */
  expiresIn?: number;
  /** Tokens that one answer may have. */
  maxTokens?: number;
  /** Answers that one request may ask for. */
  n?: number;
}

/** What is told of whoever asks, also where no token is needed. */
export type OwnToken = Pick<Token, "owner" | "scopes"> & { readonly keeps: boolean };

export class Tokens {
  readonly #wire: Wire;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** Make a token. Its text, `token`, is told now and never again, so a request whose answer was lost is not
   * repeated. */
  create(options: NewToken & CallOptions): Promise<Token & { readonly token: string }> {
    return createOnce(this.#wire, "/api/tokens", options);
  }

  /** The tokens, the newest first. */
  list({ owner, limit, signal }: CallOptions & { owner?: string; limit?: number } = {}): Pages<Token> {
    return listById(this.#wire, "/api/tokens", { owner }, limit, signal);
  }

  /** Who asks, what he may do, and whether the server keeps his chats: those of a scope, if one is named. */
  own({ scope, signal }: CallOptions & { scope?: string } = {}): Promise<Partial<Token> & OwnToken> {
    return this.#wire.json({ path: "/api/tokens/self" + (scope ? queryOf({ scope }) : "") }, signal);
  }

  /** End a token and all that were made with it; `self`: the one that is asked with. */
  async revoke(token: string, { signal }: CallOptions = {}): Promise<Token[]> {
    const path = `/api/tokens/${token === "self" ? token : idOf("tok", token)}`;
    return camels((await this.#wire.json<{ data: object[] }>({ method: "DELETE", path }, signal)).data);
  }
}

/** Make what is told now and never again. */
export function createOnce<Told>(wire: Wire, path: string, { signal, ...said }: CallOptions): Promise<Told> {
  return wire.json({ path, said: snake(said), isOnce: true }, signal);
}

/** What is listed by the id of the last one that was told. */
export function listById<Entry extends { readonly id: string }>(
  wire: Wire,
  path: string,
  said: object,
  most: number | undefined,
  signal: AbortSignal | undefined,
): Pages<Entry> {
  return new Pages(async (before, limit = 100) => {
    const whole = path + queryOf({ ...said, before, limit });
    const data = camels<Entry>((await wire.json<{ data: object[] }>({ path: whole }, signal)).data);
    return { data, next: data.length < limit ? null : (data.at(-1)?.id ?? null) };
  }, most);
}
