/** The frame around the chats and the chat: what is beside what, and what is over what where there is no room. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { Experiments } from "../first-run/experiments";
import type { Session } from "../session/session";
import { asked } from "./address-options";
import { BarView } from "./chat-header";
import { Boundary } from "./error-boundary";
import { ComposerView } from "./composer/composer";
import { ConnectionView } from "./connection";
import { Drawer } from "./drawer";
import { EmptyView, isEmpty } from "./first-run/empty-chat";
import { FirstRunView } from "./first-run/first-run";
import { NoticesView, StatusView } from "./notices";
import { SideFootView } from "./sidebar/footer";
import { SidebarView } from "./sidebar/sidebar";
import type { Theme } from "./theme";
import { ThreadView } from "./thread/thread";
import { useDocumentTitle } from "./document-title";
import { UnkeptView } from "./unkept";
import { VisitorView } from "./visitor-banner";

export function FrameView({ session, theme }: { session: Session; theme: Theme }) {
  const main = useRef<HTMLElement>(null);
  const drawer = useMemo(() => new Drawer(session.realm, asked().isEmbedded), [session]);
  const hasSide = !session.isReader;
  const isOver = hasSide && drawer.isOver.value;
  useBeginning(session);
  useDocumentTitle(session);
  // Whoever has chosen a chat wants to see it.
  useEffect(() => session.place.where.subscribe(() => drawer.leave()), [session]);
  return (
    <div class={drawer.isNarrow.value ? "page narrow" : "page"}>
      <button type="button" class="button skip" onClick={() => main.current?.focus()}>
        Skip to the chat
      </button>
      {hasSide && <SideView session={session} drawer={drawer} theme={theme} />}
      {isOver && <div class="scrim" onClick={() => drawer.close()} />}
      <main ref={main} class="chat" tabIndex={-1} aria-label="Chat" inert={isOver}>
        <BarView session={session} drawer={hasSide ? drawer : null} theme={theme} />
        <ConnectionView session={session} />
        <VisitorView session={session} />
        <UnkeptView session={session} />
        <ChatView session={session} />
      </main>
      <NoticesView notices={session.notices} />
      <StatusView notices={session.notices} />
    </div>
  );
}

function SideView({ session, drawer, theme }: { session: Session; drawer: Drawer; theme: Theme }) {
  const side = useRef<HTMLDivElement>(null);
  const isOver = drawer.isOver.value;
  const isShown = drawer.isShown.value;
  useEffect(() => {
    if (!isShown) return;
    const first = (which: string): void => side.current?.querySelector<HTMLElement>(which)?.focus();
    if (drawer.takesFocus("search")) first("[type=search]");
    else if (drawer.takesFocus("chats")) first("button, a, input");
  }, [isShown]);
  return (
    <div
      ref={side}
      id="side"
      class="side"
      inert={!isShown}
      hidden={!drawer.isNarrow.value && !isShown}
      onKeyDown={(event) => {
        if (event.key === "Escape" && isOver && !event.defaultPrevented) drawer.close();
      }}
    >
      <Boundary what="The list of chats">
        <SidebarView session={session} reveal={() => drawer.open("search")} leave={() => drawer.leave()} />
      </Boundary>
      <SideFootView session={session} theme={theme} drawer={drawer} />
    </div>
  );
}

function ChatView({ session }: { session: Session }) {
  const { hasAny: hasChats } = session.chats;
  const experiments = useMemo(() => {
    const { realm, models, model } = session;
    return new Experiments({ realm, models, model, hasChats });
  }, [session]);
  const thread = session.threads.current.value;
  if (!thread) return null;
  const isBlank = isEmpty(thread);
  return (
    <>
      <Boundary what="This chat" of={thread}>
        {isBlank ? (
          <EmptyView session={session} thread={thread} experiments={experiments} />
        ) : (
          <ThreadView session={session} thread={thread} />
        )}
      </Boundary>
      {!session.isReader && (
        <Boundary what="The field to write in">
          {!isBlank && session.mayRun && <FirstRunView session={session} thread={thread} experiments={experiments} />}
          <ComposerView session={session} thread={thread} />
        </Boundary>
      )}
    </>
  );
}

/** Open the most recent chat once, at the start, and only where the address names none. */
function useBeginning(session: Session): void {
  useEffect(() => {
    if (session.isReader) return;
    void session.chats.start();
  }, [session]);
}
