/** What somebody says, as the items that it will be in the history. */

import type { Input, Item } from "turnledger";

export function itemsOf(input: Input): readonly Item[] {
  const items = typeof input === "string" ? [input] : input;
  return items.map((item) =>
    typeof item === "string"
      ? { type: "message", role: "user", content: [{ type: "input_text", text: item }] }
      : ({ type: "message", ...item } as Item),
  );
}
