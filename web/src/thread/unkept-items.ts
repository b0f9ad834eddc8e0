/** What is said in a chat that is not kept: as items, which are shown, and as messages, which are sent. */

import type { Item, ItemPart } from "turnledger";
import type { UnkeptMessage } from "turnledger/unkept";

/** What somebody says, as messages. */
export function messagesOf(items: readonly Item[]): readonly UnkeptMessage[] {
  return items.map(({ content = "" }) => ({ role: "user", content: contentOf(content) }));
}

export function answerItem(text: string): Item {
  return { type: "message", role: "assistant", content: [{ type: "output_text", text }] };
}

export function thoughtItem(text: string): Item {
  return { type: "reasoning", summary: [{ type: "summary_text", text }] };
}

function contentOf(content: string | readonly ItemPart[]): UnkeptMessage["content"] {
  if (typeof content === "string") return content;
  if (content.every(({ text }) => text !== undefined)) return content.map(({ text }) => text).join("\n");
  return content.map((part) =>
    part.text === undefined
      ? { type: "image_url", image_url: { url: part["image_url"] } }
      : { type: "text", text: part.text },
  );
}
