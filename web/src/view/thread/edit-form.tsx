/** Edit a message. Sending it replaces the turn, on a new branch. */

import { useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { wordsOf, type Input, type Turn } from "turnledger";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { strings } from "../../strings";

interface EditProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly turn: Turn;
  readonly close: () => void;
}

export function EditForm({ session, thread, turn, close: leave }: EditProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const original = inputText(turn);
  const text = useSignal(original);
  useAutoSize(field, text.value);
  const isDone = useRef(false);
  const close = (): void => {
    isDone.current = true;
    leave();
  };
  // Another tab may replace the turn, which removes this form.
  useLayoutEffect(
    () => () => {
      const { value } = text;
      const isLost = !isDone.current && value !== original && value.trim() !== "" && !session.storage.isClosed;
      if (isLost) session.composers.of(thread).offer(value);
    },
    [],
  );
  const isSame = text.value.trim() === "" || text.value === original;
  const send = (): void => {
    if (isSame) return;
    close();
    void thread.edit(turn, edited(turn, text.value));
  };
  return (
    <form class="edit" onSubmit={(event) => event.preventDefault()}>
      <textarea
        ref={field}
        class="field"
        aria-label={strings.turn.editMessage}
        dir="auto"
        rows={1}
        value={text}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.isComposing) return;
          if (event.key === "Escape") {
            event.preventDefault();
            event.stopPropagation();
            close();
          } else if (session.shortcuts.sends(event)) {
            event.preventDefault();
            send();
          }
        }}
      />
      <div class="edit-actions">
        <button type="button" class="quiet-button" onClick={close}>
          {strings.turn.cancelEdit}
        </button>
        <button type="button" class="button primary" aria-disabled={isSame} onClick={send}>
          {strings.common.send}
        </button>
      </div>
    </form>
  );
}

/** Put the caret at the end, and fit the height of the field. */
function useAutoSize(field: RefObject<HTMLTextAreaElement | null>, text: string): void {
  useLayoutEffect(() => {
    field.current?.focus();
    field.current?.setSelectionRange(text.length, text.length);
    // In the next frame but one: the thread keeps its position when it has measured the form.
    const reveal = (): void => field.current?.scrollIntoView({ block: "nearest" });
    requestAnimationFrame(() => requestAnimationFrame(reveal));
  }, []);
  useLayoutEffect(() => {
    const { current } = field;
    if (!current) return;
    current.style.blockSize = "auto";
    current.style.blockSize = `${current.scrollHeight + 2}px`;
  }, [text]);
}

function inputText(turn: Turn): string {
  return turn.input.filter(({ role }) => role === "user").map(wordsOf).filter(Boolean).join("\n");
}

/** The same message with other text: attachments stay. */
function edited(turn: Turn, text: string): Input {
  const parts = turn.input
    .filter(({ role }) => role === "user")
    .flatMap(({ content }) => (Array.isArray(content) ? content : []))
    .filter((part) => !("text" in part));
  if (parts.length === 0) return text;
  return [{ type: "message", role: "user", content: [{ type: "input_text", text }, ...parts] }];
}
