/** Ids are checked before anything is sent: a wrong one is a bug of the program, not an unknown chat. */

import { errorOf } from "./error-of.js";

export type IdPrefix = "conv" | "turn" | "branch" | "tok" | "share";

/** An id, or an object that has one. */
export type Identified = string | { readonly id: string };

/** Return the id. Throws InvalidId if it is not of this kind. */
export function idOf(prefix: IdPrefix, value: Identified): string {
  const id = typeof value === "string" ? value : value.id;
  if (!new RegExp(`^${prefix}_[0-9a-f]{32}$`).test(id)) {
    // Do not repeat the value: it may be a secret mistaken for an id.
    throw errorOf("invalid_id", `Not an id of the form ${prefix}_…: copy it completely.`);
  }
  return id;
}

/** Create a unique name of 128 random bits. (`crypto.randomUUID` is missing in pages without TLS.) */
export function freshKey(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}
