/** Items of users and models, and the messages that an unkept chat sends. */

import type { Input, Item, ItemPart } from "turnledger";
import type { UnkeptMessage } from "turnledger/unkept";

export function itemsOf(input: Input): readonly Item[] {
  const items = typeof input === "string" ? [input] : input;
  return items.map((item) =>
    typeof item === "string"
      ? { type: "message", role: "user", content: [{ type: "input_text", text: item }] }
      : ({ type: "message", ...item } as Item),
  );
}

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
