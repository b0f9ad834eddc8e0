/** From a code to the error that is thrown. */

import { camelName } from "./casing.js";
import * as errors from "./errors.js";
import type { ErrorFacts, TurnledgerError } from "./errors.js";

export type ErrorClass = new (code: string, message: string, facts?: ErrorFacts) => TurnledgerError;

/** The error of a code: of its class, or of `otherwise` where this version knows none of that code. */
export function errorOf(
  code: string,
  message: string,
  facts?: ErrorFacts,
  otherwise: ErrorClass = errors.RequestFailed,
): TurnledgerError {
  const all = errors as unknown as Readonly<Record<string, ErrorClass>>;
  const kind = all[camelName("_" + code)] ?? otherwise;
  // Bundlers shorten the names of classes, which people read in logs.
  const name = Object.keys(all).find((each) => all[each] === kind) as string;
  return Object.assign(new kind(code, message, facts), { name });
}
