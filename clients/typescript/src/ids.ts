/** Ids are checked before anything is sent: a wrong one is a mistake of the program, not an unknown chat. */

import { errorOf } from "./error-of.js";

export type IdPrefix = "conv" | "turn" | "branch" | "tok" | "share";

/** Whatever has an id, or the id itself. */
export type Identified = string | { readonly id: string };

/** The id, if it is one of this kind. Throws InvalidId. */
export function idOf(prefix: IdPrefix, given: Identified): string {
  const id = typeof given === "string" ? given : given.id;
  if (!new RegExp(`^${prefix}_[0-9a-f]{32}$`).test(id)) {
    // What was given is not repeated: it may be a secret that was mistaken for an id.
    throw errorOf("invalid_id", `That is no id of the form ${prefix}_….`);
  }
  return id;
}

/** A name of 128 random bits, which nobody else has. (`crypto.randomUUID` is not there for pages that came without
 * TLS.) */
export function freshKey(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}
