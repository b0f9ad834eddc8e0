/** Where people write. */

import { useSignal } from "@preact/signals";
import type { Session } from "../../session/session";
import type { ShownThread } from "../../thread/shown-thread";

export function ComposerView({ thread }: { session: Session; thread: ShownThread }) {
  const draft = useSignal("");
  const send = (): void => {
    const text = draft.value.trim();
    if (!text) return;
    draft.value = "";
    void thread.send(text);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label="Message"
        dir="auto"
        value={draft}
        onInput={(event) => (draft.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      {thread.running.value.length > 0 && (
        <button type="button" onClick={() => void thread.stop()}>
          Stop
        </button>
      )}
      <button type="submit">Send</button>
    </form>
  );
}
