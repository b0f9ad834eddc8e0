/** Maps a code to the error to throw. */

import { camelName } from "./field-names.js";
import * as errors from "./errors.js";
import type { ErrorFacts, TurnledgerError } from "./errors.js";

type ErrorClass = new (code: string, message: string, facts?: ErrorFacts) => TurnledgerError;

export type ErrorName = keyof typeof errors;

/** Create the error for a code: of its class, or of `fallback` for an unknown code. */
export function errorOf(
  code: string,
  message: string,
  facts?: ErrorFacts,
  fallback: ErrorName = "RequestFailed",
): TurnledgerError {
  const all: Readonly<Record<string, ErrorClass>> = errors;
  const className = camelName("_" + code);
  // Bundlers shorten class names, which people read in logs.
  const name = all[className] ? className : fallback;
  return Object.assign(new (all[name] as ErrorClass)(code, message, facts), { name });
}
