/** The message field, as high as its text, up to a limit. */

import { useSignalEffect } from "@preact/signals";
import type { RefObject, TargetedKeyboardEvent } from "preact";
import { useEffect } from "preact/hooks";
import type { Composer } from "../../composer/composer";
import { isShortcut } from "../../composer/shortcuts";

/** Where fingers type, Enter begins a line: there is no other key for that. */
const TOUCH = "(hover: none) and (pointer: coarse)";
/** What is longer is put there at once: a browser takes seconds to type it. */
const TYPED = 10_000;

export function MessageField({
  composer,
  field,
}: {
  composer: Composer;
  field: RefObject<HTMLTextAreaElement | null>;
}) {
  const isTouch = matchMedia(TOUCH).matches;
  useEffect(() => {
    const isElsewhere = document.activeElement !== null && document.activeElement !== document.body;
    if (!isTouch && (!isElsewhere || composer.thread.id.peek() === null)) field.current?.focus({ preventScroll: true });
  }, []);
  useSignalEffect(() => {
    const text = composer.text.value;
    const shown = field.current;
    if (!shown) return;
    if (shown.value !== text) replace(shown, text);
    grow(shown);
  });
  return (
    <textarea
      ref={field}
      class="writing"
      aria-label="Message"
      aria-describedby="composer-says"
      placeholder="Write a message"
      dir="auto"
      rows={1}
      autocomplete="off"
      enterkeyhint={isTouch ? "enter" : "send"}
      defaultValue={composer.text.peek()}
      onInput={(event) => composer.write(event.currentTarget.value)}
      onKeyDown={(event) => press(event, composer, isTouch)}
    />
  );
}

function press(event: TargetedKeyboardEvent<HTMLTextAreaElement>, composer: Composer, isTouch: boolean): void {
  // The keys of somebody who picks a word are for whatever offers the words; 229 is how Safari says so.
  if (event.isComposing || event.keyCode === 229 || event.altKey) return;
  if (didPress(event, composer, isTouch)) event.preventDefault();
}

/** Do what the keys say. Returns whether they said something. */
function didPress(event: TargetedKeyboardEvent<HTMLTextAreaElement>, composer: Composer, isTouch: boolean): boolean {
  if (isShortcut("send", event)) {
    if (isTouch && event.key === "Enter" && !event.ctrlKey && !event.metaKey) return false;
    // A key that is held down says it once.
    if (!event.repeat) composer.send();
    return true;
  }
  if (isShortcut("stop", event) || isShortcut("discard", event)) {
    if (!composer.isBusy.peek()) return false;
    composer.stop(event.shiftKey ? "discard" : "keep");
    return true;
  }
  if (event.shiftKey || event.ctrlKey || event.metaKey) return false;
  // Between the lines of a text, arrows lead from line to line.
  const { value, selectionStart, selectionEnd } = event.currentTarget;
  if (event.key === "ArrowUp") return !value.slice(0, selectionStart).includes("\n") && composer.recall(1);
  if (event.key === "ArrowDown") return !value.slice(selectionEnd).includes("\n") && composer.recall(-1);
  return false;
}

/** Show another text. Where somebody writes there, it can be undone. */
function replace(shown: HTMLTextAreaElement, text: string): void {
  if (document.activeElement === shown && shown.value.length + text.length < TYPED) {
    shown.select();
    // The only way to change a field that its own undo knows of.
    document.execCommand(text === "" ? "delete" : "insertText", false, text);
  }
  if (shown.value !== text) shown.value = text;
}

/** Where the style sheet cannot, make it as high as its text. */
function grow(shown: HTMLTextAreaElement): void {
  if (CSS.supports("field-sizing", "content")) return;
  shown.style.blockSize = "auto";
  shown.style.blockSize = `${shown.scrollHeight}px`;
}
