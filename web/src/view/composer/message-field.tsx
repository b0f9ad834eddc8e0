/** The message field, as high as its text, up to a limit. */

import { effect } from "@preact/signals";
import type { RefObject, TargetedKeyboardEvent } from "preact";
import { useLayoutEffect } from "preact/hooks";
import type { Composer } from "../../composer/composer";
import { isShortcut, type ShortcutSettings } from "../../composer/shortcuts";
import { strings } from "../../strings";

/** On touch screens Enter starts a new line: there is no other key for it. */
const TOUCH = "(hover: none) and (pointer: coarse)";
/** Longer text is set directly: typing it takes the browser seconds. */
const MAX_TYPED = 10_000;

interface FieldProps {
  readonly composer: Composer;
  readonly shortcuts: ShortcutSettings;
  readonly field: RefObject<HTMLTextAreaElement | null>;
}

export function MessageField({ composer, shortcuts, field }: FieldProps) {
  const isTouch = matchMedia(TOUCH).matches;
  // Before the next keystroke. The user may have gone elsewhere while the chat was loading.
  useLayoutEffect(() => {
    const active = document.activeElement;
    if (!isTouch && (active === null || active === document.body)) field.current?.focus({ preventScroll: true });
  }, []);
  // Not in the next frame: another key may come first, and would continue a message that was sent.
  useLayoutEffect(
    () =>
      effect(() => {
        const text = composer.text.value;
        const shown = field.current as HTMLTextAreaElement;
        if (shown.value !== text) replace(shown, text);
        grow(shown);
      }),
    [],
  );
  return (
    <textarea
      ref={field}
      class="writing"
      aria-label={strings.composer.field}
      aria-describedby="composer-status"
      placeholder={strings.composer.placeholder}
      dir="auto"
      rows={1}
      autocomplete="off"
      enterkeyhint={isTouch || shortcuts.sendKey.value !== "Enter" ? "enter" : "send"}
      defaultValue={composer.text.peek()}
      onInput={(event) => composer.write(event.currentTarget.value)}
      onKeyDown={(event) => {
        // During input composition keys belong to the input method; Safari reports it as 229.
        if (event.isComposing || event.keyCode === 229 || event.altKey) return;
        const isSend = shortcuts.sends(event) && !(isTouch && !event.ctrlKey && !event.metaKey);
        if (handleKey(event, composer, isSend)) event.preventDefault();
      }}
    />
  );
}

/** Handle a key. Returns whether it was handled. */
function handleKey(event: TargetedKeyboardEvent<HTMLTextAreaElement>, composer: Composer, isSend: boolean): boolean {
  if (isSend) {
    // Ignore key repeat.
    if (!event.repeat) composer.send();
    return true;
  }
  if (isShortcut("stop", event) || isShortcut("discard", event)) {
    if (!composer.isBusy.peek()) return false;
    composer.stop(event.shiftKey ? "discard" : "keep");
    return true;
  }
  if (event.shiftKey || event.ctrlKey || event.metaKey) return false;
  // Within several lines, arrow keys move the caret.
  const { value, selectionStart, selectionEnd } = event.currentTarget;
  if (event.key === "ArrowUp") return !value.slice(0, selectionStart).includes("\n") && composer.recall(1);
  if (event.key === "ArrowDown") return !value.slice(selectionEnd).includes("\n") && composer.recall(-1);
  return false;
}

/** Replace the text, so that the field's own undo can revert it. */
function replace(shown: HTMLTextAreaElement, text: string): void {
  if (document.activeElement === shown && shown.value.length + text.length < MAX_TYPED) {
    shown.select();
    // The only change of a field that its undo knows.
    document.execCommand(text === "" ? "delete" : "insertText", false, text);
  }
  if (shown.value !== text) shown.value = text;
}

/** Where the style sheet cannot, set the height to that of the text. */
function grow(shown: HTMLTextAreaElement): void {
  if (CSS.supports("field-sizing", "content")) return;
  shown.style.blockSize = "auto";
  shown.style.blockSize = `${shown.scrollHeight}px`;
}
