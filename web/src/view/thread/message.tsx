/** The input of a turn: plain text, images, tool results. A long one is folded. */

import { useSignal } from "@preact/signals";
import { safeProse } from "../../markdown/safe-text";
import type { TurnPart } from "../../thread/turn-parts";
import { ImageView } from "../markdown/image";
import { NoteView, PartView } from "./answer";

/** Longer messages are folded: in characters, or lines. */
const LONG = 1_600;
const LINES = 24;

export function MessageView({ parts }: { parts: readonly TurnPart[] }) {
  if (parts.length === 0) return null;
  return (
    <div class="asked">
      {parts.map((part, place) => (
        <AskedPart key={place} part={part} />
      ))}
    </div>
  );
}

function AskedPart({ part }: { part: TurnPart }) {
  switch (part.kind) {
    case "text":
      return <Text text={part.text} />;
    case "picture":
      return <ImageView address={part.url} alt="Image that was sent" />;
    case "note":
      return <NoteView text={part.text} />;
    default:
      return <PartView part={part} />;
  }
}

function Text({ text }: { text: string }) {
  const isOpen = useSignal(false);
  const isLong = text.length > LONG || text.split("\n", LINES + 1).length > LINES;
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
          {isOpen.value ? "Show less" : "Show all of it"}
        </button>
      )}
    </div>
  );
}

function beginning(text: string): string {
  const lines = text.split("\n", LINES).join("\n");
  const cut = lines.slice(0, LONG);
  // Not between surrogates.
  return `${/[\ud800-\udbff]$/.test(cut) ? cut.slice(0, -1) : cut}…`;
}
