/** The layout: sidebar and chat side by side, or the sidebar over the chat on narrow screens. */

import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Experiments, type ExperimentThread } from "../first-run/experiments";
import type { Session } from "../session/session";
import type { Thread } from "../thread/thread";
import { addressOptions } from "./address-options";
import { ErrorBoundary } from "./error-boundary";
import { ComposerView } from "./composer/composer";
import { ConnectionView } from "./connection";
import { OpenDialogView } from "./dialogs/open-dialog";
import { Drawer } from "./drawer";
import { DrawerButton } from "./drawer-button";
import { EmptyChatFoot, EmptyChatView, isEmptyChat } from "./first-run/empty-chat";
import { FirstRunView } from "./first-run/first-run";
import { ChatHeader } from "./header/chat-header";
import { Mark } from "./icons";
import { NoticesView, StatusView } from "./notices";
import { SidebarFooter } from "./sidebar/footer";
import { SidebarView } from "./sidebar/sidebar";
import { useSwipe } from "./swipe";
import type { Language } from "../strings/language";
import type { Theme } from "./theme";
import { ThreadView } from "./thread/thread";
import { useDocumentTitle } from "./document-title";
import { UnkeptBanner } from "./unkept";
import { VisitorBanner } from "./visitor-banner";
import { strings } from "../strings";

interface LayoutProps {
  readonly session: Session;
  readonly theme: Theme;
  readonly language: Language;
}

export function LayoutView({ session, theme, language }: LayoutProps) {
  const main = useRef<HTMLElement>(null);
  const drawer = useMemo(() => new Drawer(session.storage, addressOptions().isEmbedded), [session]);
  const hasSide = !session.isReader;
  const isOver = hasSide && drawer.isOver.value;
  const thread = session.threads.current.value;
  const isBlank = thread !== null && isEmptyChat(thread);
  useSwipe(hasSide ? drawer : null);
  useFirstChat(session);
  useDocumentTitle(session);
  // Show the chosen chat. The first one was not chosen, and may arrive after the user opened the list.
  useEffect(() => {
    let last: unknown = null;
    return session.router.route.subscribe((route) => {
      if (last !== null) drawer.leave();
      last = route;
    });
  }, [session]);
  return (
    <div class={drawer.isNarrow.value ? "page narrow" : "page"}>
      <button type="button" class="button skip" onClick={() => main.current?.focus()}>
        {strings.layout.skipToChat}
      </button>
      {hasSide && <SideView session={session} drawer={drawer} theme={theme} />}
      {isOver && <div class="scrim" onClick={() => drawer.close()} />}
      <main
        ref={main}
        class={isBlank ? "chat blank" : "chat"}
        tabIndex={-1}
        aria-label={strings.layout.chat}
        inert={isOver}
      >
        <ChatHeader session={session} drawer={hasSide ? drawer : null} theme={theme} />
        <ConnectionView session={session} />
        <VisitorBanner session={session} />
        <UnkeptBanner session={session} />
        <ChatView session={session} isBlank={isBlank} isOver={isOver} />
      </main>
      <OpenDialogView session={session} theme={theme} language={language} />
      <StatusView notices={session.notices} />
    </div>
  );
}

function SideView({ session, drawer, theme }: { session: Session; drawer: Drawer; theme: Theme }) {
  const side = useRef<HTMLDivElement>(null);
  const isOver = drawer.isOver.value;
  const isShown = drawer.isShown.value;
  // Before the next key.
  useLayoutEffect(() => {
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
      <header class="bar">
        <DrawerButton drawer={drawer} hides />
        <span class="product">
          <Mark />
          {strings.product}
        </span>
      </header>
      <ErrorBoundary subject={strings.crash.chatList}>
        <SidebarView session={session} reveal={() => drawer.open("search")} leave={() => drawer.leave()} />
      </ErrorBoundary>
      {isOver && <NoticesView notices={session.notices} />}
      <SidebarFooter session={session} theme={theme} />
    </div>
  );
}

/** `isOver`: the list of chats covers it, and shows the notices. */
function ChatView({ session, isBlank, isOver }: { session: Session; isBlank: boolean; isOver: boolean }) {
  const { hasAny: hasChats } = session.chats;
  const experiments = useMemo(() => {
    const { storage, models, model, composers } = session;
    const takeBack = (of: ExperimentThread, text: string): void => composers.of(of as Thread).takeBack(text);
    return new Experiments({ storage, models, model, hasChats, takeBack });
  }, [session]);
  const thread = session.threads.current.value;
  const notices = !isOver && <NoticesView notices={session.notices} />;
  if (!thread) return <>{notices}</>;
  return (
    <>
      <ErrorBoundary subject={strings.crash.chat} of={thread}>
        {isBlank ? (
          <EmptyChatView session={session} thread={thread} experiments={experiments} />
        ) : (
          <ThreadView session={session} thread={thread} />
        )}
      </ErrorBoundary>
      {notices}
      {!session.isReader && (
        <ErrorBoundary subject={strings.crash.composer}>
          {!isBlank && session.mayRun && <FirstRunView session={session} thread={thread} experiments={experiments} />}
          <ComposerView session={session} thread={thread} />
          {isBlank && <EmptyChatFoot session={session} thread={thread} experiments={experiments} />}
        </ErrorBoundary>
      )}
    </>
  );
}

/** Open the most recent chat once, at the start, unless the address names one. */
function useFirstChat(session: Session): void {
  useEffect(() => {
    if (session.isReader) return;
    void session.chats.start();
  }, [session]);
}
