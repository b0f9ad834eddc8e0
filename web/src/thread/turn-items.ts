/** The items of a turn that can be hidden from the model, each under a name. */

import type { Item, Turn } from "turnledger";
import { safeText } from "../markdown/safe-text";
import { strings } from "../strings";
import { pairs } from "./turn-parts";

export interface NamedItem {
  readonly name: string;
  readonly place: number;
  readonly isHidden: boolean;
}

/** In their order, without those that the user does not see. A call stands for its result, too: they are hidden
 * together. */
export function namedItems({ input, output, hidden, hiddenFromModel }: Turn): readonly NamedItem[] {
  const items = [...input, ...output];
  const results = new Set(pairs(items).values());
  const counts = new Map<string, number>();
  return items.flatMap((item, place): NamedItem[] => {
    if (results.has(item) || hidden.includes(place)) return [];
    const name = nameOf(item);
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return [{ name: count > 1 ? `${name} (${count})` : name, place, isHidden: hiddenFromModel.includes(place) }];
  });
}

function nameOf({ type, role, name }: Item): string {
  const { items } = strings.turn;
  if (type === "reasoning") return items.reasoning;
  if (type !== "message") return safeText(String(name ?? type));
  if (role === "assistant") return items.answer;
  return role === "user" ? items.message : items.note;
}
