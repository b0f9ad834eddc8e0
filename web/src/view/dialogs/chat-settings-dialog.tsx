/** Instructions and parameters of a chat. */

import { useSignal } from "@preact/signals";
import type { TargetedKeyboardEvent } from "preact";
import { useId, useRef } from "preact/hooks";
import { errorText } from "../../session/notices";
import type { Session } from "../../session/session";
import { MAX_INSTRUCTIONS } from "../../chats/chat-settings";
import type { Thread } from "../../thread/thread";
import { mayChangeSettings } from "../composer/chat-settings-button";
import { strings } from "../../strings";

export function ChatSettingsView({ session, thread }: { session: Session; thread: Thread }) {
  const instructions = useRef<HTMLTextAreaElement>(null);
  const temperature = useRef<HTMLInputElement>(null);
  const maxTokens = useRef<HTMLInputElement>(null);
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const name = useId();
  const mayChange = mayChangeSettings(session, thread);
  // As they were when the dialog was opened: changes elsewhere must not replace what is being written.
  const shown = useRef(thread.settings.peek()).current;
  const texts = strings.chatSettings;

  const refuse = (field: HTMLInputElement, text: string): null => {
    problem.value = text;
    field.focus();
    return null;
  };
  const read = (): Parameters<Thread["changeSettings"]>[0] | null => {
    const text = instructions.current!.value.trim();
    const heat = temperature.current!;
    const length = maxTokens.current!;
    if (!isNumber(heat)) return refuse(heat, texts.invalidTemperature);
    if (!isNumber(length) || length.validity.stepMismatch) return refuse(length, texts.invalidMaxTokens);
    return {
      // Removed ones end those in force; if there were none, other programs may have set some.
      instructions: text === "" && !shown.instructions ? shown.instructions : text,
      temperature: heat.value === "" ? null : heat.valueAsNumber,
      maxTokens: length.value === "" ? null : length.valueAsNumber,
    };
  };
  const save = async (): Promise<void> => {
    const settings = mayChange && !isBusy.peek() ? read() : null;
    if (settings === null) return;
    isBusy.value = true;
    try {
      await thread.changeSettings(settings);
      session.notices.announce(texts.saved);
      // The focus returns to the button.
      instructions.current?.closest("dialog")?.close();
    } catch (refusal) {
      problem.value = errorText(refusal);
      isBusy.value = false;
    }
  };
  /** No form is submitted: a frame may forbid that. */
  const onKey = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const isText = event.target === instructions.current;
    const isSent = event.key === "Enter" && !event.isComposing && (!isText || event.ctrlKey || event.metaKey);
    if (!isSent || event.target instanceof HTMLButtonElement) return;
    event.preventDefault();
    void save();
  };
  const clear = (): void => {
    for (const { current } of [instructions, temperature, maxTokens]) current!.value = "";
    problem.value = null;
    instructions.current!.focus();
  };
  const common = { class: "field", readOnly: !mayChange, "aria-describedby": name };
  const number = { ...common, type: "number", placeholder: texts.default, autocomplete: "off" } as const;
  return (
    <>
      {mayChange && <p>{texts.explanation}</p>}
      <div class="chat-settings-fields" onKeyDown={onKey}>
        <label>
          {texts.instructions}
          <textarea
            {...common}
            ref={instructions}
            dir="auto"
            rows={6}
            maxLength={MAX_INSTRUCTIONS}
            placeholder={texts.placeholder}
            defaultValue={shown.instructions ?? ""}
          />
        </label>
        <div class="dialog-fields">
          <label>
            {texts.temperature}
            <input {...number} ref={temperature} min="0" max="2" step="0.1" defaultValue={shown.temperature ?? ""} />
          </label>
          <label>
            {texts.maxTokens}
            <input {...number} ref={maxTokens} min="1" step="1" defaultValue={shown.maxTokens ?? ""} />
          </label>
        </div>
      </div>
      <p id={name} class="bad-text dialog-status" role="alert">
        {problem.value}
      </p>
      {mayChange && (
        <div class="dialog-actions at-end">
          <button type="button" class="button" onClick={clear}>
            {texts.clear}
          </button>
          <button type="button" class="button primary" aria-disabled={isBusy.value} onClick={() => void save()}>
            {texts.save}
          </button>
        </div>
      )}
    </>
  );
}

/** Whether a field has a number in its range, or nothing. Any step is accepted. */
function isNumber({ validity }: HTMLInputElement): boolean {
  return !validity.badInput && !validity.rangeUnderflow && !validity.rangeOverflow;
}
