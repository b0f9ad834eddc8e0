/** The frame of the page: who is not let in sees why, who is sees his chats. */

import { useEffect } from "preact/hooks";
import type { Arriving } from "../session/arriving";
import type { Session } from "../session/session";
import { AccountView } from "./account";
import { ComposerView } from "./composer/composer";
import { NoticesView } from "./notices";
import { SidebarView } from "./sidebar/sidebar";
import { ArrivalView } from "./sign-in";
import { ThreadView } from "./thread/thread";
import { VisitorView } from "./visitor";

export function PageView({ arriving }: { arriving: Arriving }) {
  const arrival = arriving.arrival.value;
  // Another credential is another page: nothing that a view remembers is shown on.
  if (arrival.kind === "in") return <ChatsView key={arrival.session.realm.name} session={arrival.session} />;
  return <ArrivalView arriving={arriving} arrival={arrival} />;
}

function ChatsView({ session }: { session: Session }) {
  useEffect(() => {
    // The most recent chat is opened once, at the start, and only where the address names none.
    if (session.isReader) return;
    void session.chats.more().then(() => {
      if (session.place.where.peek() === null) session.place.begin(session.chats.rows.peek()[0]?.id ?? null);
    });
  }, [session]);
  const thread = session.threads.current.value;
  return (
    <div class="page">
      {!session.isReader && (
        <div class="side">
          <SidebarView session={session} />
          <AccountView session={session} />
        </div>
      )}
      <main class="chat" aria-label="Chat">
        <VisitorView session={session} />
        {thread && <ThreadView session={session} thread={thread} />}
        {thread && session.mayRun && <ComposerView session={session} thread={thread} />}
      </main>
      <NoticesView notices={session.notices} />
    </div>
  );
}
