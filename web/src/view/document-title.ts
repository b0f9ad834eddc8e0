/** The title of the browser tab. */

import { effect } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { safeText } from "../markdown/safe-text";
import type { Session } from "../session/session";
import { strings } from "../strings";

/** The title of the current chat; null if it has none. */
export function currentTitle(session: Session): string | null {
  const thread = session.threads.current.value;
  const id = thread?.id.value;
  // The list receives a new title first; a chat outside it has its own.
  const listed = id == null ? undefined : session.chats.rows.value.find((each) => each.id === id);
  return safeText((listed ?? thread?.info.value)?.title ?? "") || null;
}

/** Keep the document title in sync, with a dot while a turn is pending. */
export function useDocumentTitle(session: Session): void {
  // Other effects are undone after the next paint: the title of a private chat would outlast it.
  useLayoutEffect(
    () =>
      effect(() => {
        const isRunning = (session.threads.current.value?.pending.value.length ?? 0) > 0;
        const title = currentTitle(session);
        document.title = `${isRunning ? "● " : ""}${title === null ? "" : `${title} · `}${strings.product}`;
        return () => {
          document.title = strings.product;
        };
      }),
    [session],
  );
}
