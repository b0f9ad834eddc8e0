/** The input of a turn: plain text, images, tool results. A long one is folded. */

import { useSignal } from "@preact/signals";
import { safeProse } from "../../markdown/safe-text";
import type { TurnPart } from "../../thread/turn-parts";
import { ImageView } from "../markdown/image";
import { NoteView, PartView } from "./answer";
import { strings } from "../../strings";

/** Longer messages are folded: in characters, or lines. */
const MAX_LENGTH = 1_600;
const MAX_LINES = 24;

export function MessageView({ parts }: { parts: readonly TurnPart[] }) {
  if (parts.length === 0) return null;
  return (
    <div class="input">
      {parts.map((part, index) => (
        <MessagePart key={index} part={part} />
      ))}
    </div>
  );
}

function MessagePart({ part }: { part: TurnPart }) {
  switch (part.kind) {
    case "text":
      return <Text text={part.text} />;
    case "picture":
      return <ImageView address={part.url} alt={strings.thread.sentImage} />;
    case "note":
      return <NoteView text={part.text} />;
    default:
      return <PartView part={part} />;
  }
}

function Text({ text }: { text: string }) {
  const isOpen = useSignal(false);
  const isLong = text.length > MAX_LENGTH || text.split("\n", MAX_LINES + 1).length > MAX_LINES;
  const shown = isLong && !isOpen.value ? beginning(text) : text;
  return (
    <div class="message user" dir="auto">
      {safeProse(shown)}
      {isLong && (
        <button
          type="button"
          class="quiet-button small fold"
          aria-expanded={isOpen.value}
          onClick={() => (isOpen.value = !isOpen.value)}
        >
          {isOpen.value ? strings.thread.showLess : strings.thread.showMore}
        </button>
      )}
    </div>
  );
}

function beginning(text: string): string {
  const lines = text.split("\n", MAX_LINES).join("\n");
  const cut = lines.slice(0, MAX_LENGTH);
  // Not between surrogates.
  return `${/[\ud800-\udbff]$/.test(cut) ? cut.slice(0, -1) : cut}…`;
}
