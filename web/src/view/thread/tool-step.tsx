/** A tool call: its input, its output, and its state. */

import { useSignal, type ReadonlySignal } from "@preact/signals";
import { safeProse } from "../../markdown/safe-text";
import type { TurnPart, StepState } from "../../thread/turn-parts";
import { CheckIcon, CloseIcon, InfoIcon, ToolIcon, WarningIcon } from "../icons";
import { CodeView } from "../markdown/code";
import { ImageView } from "../markdown/image";
import { strings } from "../../strings";

type Step = Extract<TurnPart, { kind: "step" }>;

/** `growing`: its input while that streams in. */
export function ToolStep({ step, growing }: { step: Step; growing?: ReadonlySignal<string> }) {
  const isOpen = useSignal(false);
  return (
    <details class="step" data-step={step.state} onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>
        <ToolIcon size={16} />
        <span class="step-name one-line" dir="auto">
          {step.name}
        </span>
        <StateChip state={step.state} />
      </summary>
      {isOpen.value && <Inside step={growing ? { ...step, input: growing.value } : step} />}
    </details>
  );
}

function Inside({ step }: { step: Step }) {
  return (
    <div class="step-inside">
      {step.input && (
        <>
          <p class="quiet-text">{strings.tools.input}</p>
          <CodeView key={strings.language} text={step.input} language={languageOf(step.input)} />
        </>
      )}
      {step.output !== null && (
        <>
          <p class="quiet-text">{isGiven(step.state) ? strings.tools.status : strings.tools.output}</p>
          {isGiven(step.state) ? <p dir="auto">{safeProse(step.output)}</p> : <Output step={step} />}
        </>
      )}
      {step.pictures.map((address) => (
        <ImageView key={address} address={address} alt={strings.tools.imageFrom(step.name)} />
      ))}
    </div>
  );
}

function Output({ step: { output, pictures } }: { step: Step }) {
  if (!output) return pictures.length > 0 ? null : <p class="quiet-text">{strings.tools.noOutput}</p>;
  return <CodeView key={strings.language} text={output} language={languageOf(output)} />;
}

function StateChip({ state }: { state: StepState }) {
  switch (state) {
    case "running":
      return (
        <span class="chip accent">
          <span class="spinner" aria-hidden="true" />
          {strings.tools.states[state]}
        </span>
      );
    case "done":
      return (
        <span class="chip good">
          <CheckIcon size={14} />
          {strings.tools.states[state]}
        </span>
      );
    case "failed":
      return (
        <span class="chip bad">
          <CloseIcon size={14} />
          {strings.tools.states[state]}
        </span>
      );
    case "unknown":
      return (
        <span class="chip warn">
          <WarningIcon size={14} />
          {strings.tools.states[state]}
        </span>
      );
    default:
      return (
        <span class="chip">
          <InfoIcon size={14} />
          {strings.tools.states[state]}
        </span>
      );
  }
}

/** Whether the ledger wrote the result, not a tool. */
function isGiven(state: StepState): boolean {
  return state === "not started" || state === "unknown" || state === "not answered";
}

function languageOf(text: string): string {
  return /^\s*[[{]/.test(text) ? "json" : "";
}
