/** The frame of the page: who is not let in sees why, who is sees his chats. */

import { useEffect } from "preact/hooks";
import type { Arriving } from "../session/arriving";
import type { Session } from "../session/session";
import { ComposerView } from "./composer/composer";
import { NoticesView } from "./notices";
import { SidebarView } from "./sidebar/sidebar";
import { ThreadView } from "./thread/thread";

export function PageView({ arriving }: { arriving: Arriving }) {
  const arrival = arriving.arrival.value;
  switch (arrival.kind) {
    case "arriving":
      return <main class="arriving" aria-busy="true" />;
    case "in":
      return <ChatsView session={arrival.session} />;
    default:
      return (
        <main class="refused">
          <h1>Turnledger</h1>
          <p role="alert">{arrival.why}</p>
        </main>
      );
  }
}

function ChatsView({ session }: { session: Session }) {
  useEffect(() => {
    // The most recent chat is opened once, at the start, and only where the address names none.
    void session.chats.start();
  }, [session]);
  const thread = session.threads.current.value;
  return (
    <div class="page">
      <SidebarView session={session} />
      <main class="chat" aria-label="Chat">
        {thread && <ThreadView session={session} thread={thread} />}
        {thread && session.mayRun && <ComposerView session={session} thread={thread} />}
      </main>
      <NoticesView notices={session.notices} />
    </div>
  );
}
