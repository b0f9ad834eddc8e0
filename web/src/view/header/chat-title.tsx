/** The title of the chat, and the field that renames it in place. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { strings } from "../../strings";

export function ChatTitle({ title }: { title: string }) {
  return (
    <h1 class="one-line" dir="auto" title={title}>
      {title}
    </h1>
  );
}

interface FieldProps {
  readonly title: string;
  /** Called with the text to keep, or null to leave the title as it is. */
  readonly onEnd: (title: string | null) => void;
}

export function TitleField({ title, onEnd }: FieldProps) {
  const field = useRef<HTMLInputElement>(null);
  const isOver = useRef(false);
  // Before the next keystroke.
  useLayoutEffect(() => {
    field.current?.focus();
    field.current?.select();
  }, []);
  const end = (text: string | null): void => {
    if (isOver.current) return; // the blur follows a key
    isOver.current = true;
    onEnd(text);
  };
  return (
    <h1>
      <input
        ref={field}
        class="field"
        aria-label={strings.chats.name}
        dir="auto"
        maxLength={512}
        defaultValue={title}
        onKeyDown={(event) => {
          if (event.isComposing) return;
          if (event.key === "Enter") end(event.currentTarget.value);
          else if (event.key === "Escape") end(null);
          else return;
          event.preventDefault();
          event.stopPropagation();
        }}
        onBlur={(event) => end(event.currentTarget.value)}
      />
    </h1>
  );
}
