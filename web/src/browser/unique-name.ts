/** Names that nobody has given before. */

/** Pages that came by plain http have no `randomUUID`. */
export function freshName(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
