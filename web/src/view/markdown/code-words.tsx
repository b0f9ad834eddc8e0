/** A text of the page with words of code in it. */

import type { ComponentChildren } from "preact";

/** Show the parts between backticks as code. */
export function withCode(text: string): ComponentChildren {
  return text.split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part));
}
