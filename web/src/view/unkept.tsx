/** A banner on a chat that is not kept, with a question before the user leaves it; and the switch that makes a new chat
 * temporary. */

import { useLayoutEffect, useRef } from "preact/hooks";
import "../style/sign-in.css";
import { releaseFocus } from "../chats/open-chat";
import type { Session } from "../session/session";
import type { Thread } from "../thread/thread";
import { ClockIcon } from "./icons";
import { strings } from "../strings";

/** Null if the chat is kept. */
export function UnkeptBanner({ session: { router, threads } }: { session: Session }) {
  if (threads.current.value?.isKept !== false) return null;
  if (router.leaving.value !== null) return <LeavingView leave={() => router.leave()} stay={() => router.stay()} />;
  return (
    <div class="strip unkept" role="note" aria-label={strings.unkept.region}>
      <p>{strings.unkept.banner}</p>
    </div>
  );
}

function LeavingView({ leave, stay }: { leave: () => void; stay: () => void }) {
  const staying = useRef<HTMLButtonElement>(null);
  // Before the next key.
  useLayoutEffect(() => staying.current?.focus(), []);
  return (
    <div
      class="strip unkept"
      role="group"
      aria-label={strings.unkept.leaving}
      onKeyDown={(event) => {
        if (event.key === "Escape") stay();
      }}
    >
      <p role="alert">{strings.unkept.warning}</p>
      <button ref={staying} type="button" class="button small" onClick={stay}>
        {strings.unkept.stay}
      </button>
      <button type="button" class="button bad small" onClick={leave}>
        {strings.unkept.leave}
      </button>
    </div>
  );
}

/** The switch, while the chat is empty; otherwise null. */
export function TemporaryChatSwitch({ session, thread }: { session: Session; thread: Thread }) {
  if (!session.mayRun || !session.keeps || thread.id.value !== null) return null;
  const { router } = session;
  return (
    <button
      type="button"
      class="quiet-button temporary"
      role="switch"
      aria-checked={!thread.isKept}
      title={strings.unkept.switchHint}
      onClick={() => {
        releaseFocus();
        if (thread.isKept) router.openUnkept();
        else router.openNew();
      }}
    >
      <ClockIcon />
      {strings.layout.temporaryChat}
    </button>
  );
}
