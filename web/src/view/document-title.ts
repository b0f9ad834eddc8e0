/** The title of the browser tab. */

import { useSignalEffect } from "@preact/signals";
import { safeText } from "../markdown/safe-text";
import type { Session } from "../session/session";

export const PRODUCT = "Turnledger";

/** The name of what is shown; null where it has none. */
export function currentTitle(session: Session): string | null {
  const thread = session.threads.current.value;
  const id = thread?.id.value;
  // The list hears of a new name at once; a chat that is not in it knows its own.
  const listed = id == null ? undefined : session.chats.rows.value.find((each) => each.id === id);
  return safeText((listed ?? thread?.info.value)?.title ?? "") || null;
}

/** Keep the title of the document as the chat's, with a dot while it runs. */
export function useDocumentTitle(session: Session): void {
  useSignalEffect(() => {
    const isRunning = (session.threads.current.value?.pending.value.length ?? 0) > 0;
    const title = currentTitle(session);
    document.title = `${isRunning ? "● " : ""}${title === null ? PRODUCT : `${title} · ${PRODUCT}`}`;
    return () => {
      document.title = PRODUCT;
    };
  });
}
