/** From a code to the error that is thrown. */

import { camelName } from "./field-names.js";
import * as errors from "./errors.js";
import type { ErrorFacts, TurnledgerError } from "./errors.js";

type ErrorClass = new (code: string, message: string, facts?: ErrorFacts) => TurnledgerError;

/** What a class is called. */
export type ErrorName = keyof typeof errors;

/** The error of a code: of its class, or of `otherwise` where this version knows none of that code. */
export function errorOf(
  code: string,
  message: string,
  facts?: ErrorFacts,
  otherwise: ErrorName = "RequestFailed",
): TurnledgerError {
  const all: Readonly<Record<string, ErrorClass>> = errors;
  const called = camelName("_" + code);
  // Bundlers shorten the names of classes, which people read in logs.
  const name = all[called] ? called : otherwise;
  return Object.assign(new (all[name] as ErrorClass)(code, message, facts), { name });
}
