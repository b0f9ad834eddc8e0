/** The answer of a turn, part by part; of a running turn, also the text, reasoning and calls that stream in. */

import { effect, useComputed, useSignal, type ReadonlySignal, type Signal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { safeProse } from "../../markdown/safe-text";
import { openStep, runningParts, type TurnPart } from "../../thread/turn-parts";
import type { OpenCall, PendingTurn } from "../../thread/pending-turn";
import { ThoughtIcon } from "../icons";
import { MarkdownView } from "../markdown/markdown";
import { ImageView } from "../markdown/image";
import { CodeView } from "../markdown/code";
import { ToolStep } from "./tool-step";
import { strings } from "../../strings";

const NO_ITEMS: readonly never[] = [];

/** `parts`: null while it runs. Parts keep their index at the end of the turn, and so their elements. */
export function AnswerView({ parts, pending }: { parts: readonly TurnPart[] | null; pending: PendingTurn | null }) {
  const items = pending?.items.value ?? NO_ITEMS;
  const list = useMemo(() => parts ?? runningParts(items), [parts, items, strings.language]);
  const isThinking = useComputed(() => pending !== null && pending.reasoning.value !== "").value && parts === null;
  const isWriting = useComputed(() => pending !== null && pending.text.value !== "").value && parts === null;
  const calls = (parts === null && pending?.calls.value) || NO_ITEMS;
  const all: readonly (TurnPart | Growing | GrowingStep)[] = [
    ...list,
    ...(isThinking ? [{ kind: "growing thought", text: pending!.reasoning } as const] : []),
    ...(isWriting ? [{ kind: "growing text", text: pending!.text } as const] : []),
    ...calls.map((call) => ({ kind: "growing step", call }) as const),
  ];
  return (
    <>
      {all.map((part, index) => (
        <PartView key={index} part={part} />
      ))}
    </>
  );
}

type Growing = { readonly kind: "growing text" | "growing thought"; readonly text: ReadonlySignal<string> };
type GrowingStep = { readonly kind: "growing step"; readonly call: OpenCall };

export function PartView({ part }: { part: TurnPart | Growing | GrowingStep }) {
  switch (part.kind) {
    case "growing text":
      return <TextPart text={null} growing={part.text} />;
    case "growing thought":
      return <ThoughtPart text={null} growing={part.text} />;
    case "growing step":
      return <ToolStep step={openStep(part.call.item)} growing={part.call.input} />;
    case "text":
      return <TextPart text={part.text} />;
    case "reasoning":
      return <ThoughtPart text={part.text} />;
    case "picture":
      return <ImageView address={part.url} alt={part.alt} />;
    case "file":
      return <p class="chip">{part.name}</p>;
    case "step":
      return <ToolStep step={part} />;
    case "note":
      return <NoteView text={part.text} />;
    case "other":
      return (
        <details class="step">
          <summary>{strings.thread.unknownStep(part.type)}</summary>
          <CodeView key={strings.language} text={part.json} language="json" />
        </details>
      );
  }
}

/** A text; `growing`: while it streams in. */
function TextPart({ text, growing }: { text: string | null; growing?: ReadonlySignal<string> }) {
  const shown = useLastText(growing);
  return (
    <div class="message assistant">
      <MarkdownView key={strings.language} text={text ?? shown} isGrowing={text === null} />
    </div>
  );
}

function ThoughtPart({ text, growing }: { text: string | null; growing?: ReadonlySignal<string> }) {
  const shown = useLastText(growing);
  const isOpen = useSignal(false);
  return (
    <details class="thought" onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>
        <ThoughtIcon size={16} />
        {text === null ? strings.thread.thinking : strings.thread.reasoning}
      </summary>
      {isOpen.value && <MarkdownView key={strings.language} text={text ?? shown} isGrowing={text === null} />}
    </details>
  );
}

export function NoteView({ text }: { text: string }) {
  return (
    <details class="note">
      <summary>{strings.thread.systemMessage}</summary>
      <p dir="auto">{safeProse(text)}</p>
    </details>
  );
}

/** The text of a signal that is cleared just before its content arrives as a finished part. */
function useLastText(growing: ReadonlySignal<string> | undefined): Signal<string> {
  const shown = useSignal(growing?.peek() ?? "");
  useLayoutEffect(() => {
    if (!growing) return undefined;
    return effect(() => {
      if (growing.value !== "") shown.value = growing.value;
    });
  }, [growing]);
  return shown;
}
