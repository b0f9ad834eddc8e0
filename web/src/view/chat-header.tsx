/** The bar above the chat: its title, its menu, and the button that shows the chats. */

import { useEffect, useRef } from "preact/hooks";
import type { Session } from "../session/session";
import type { Thread } from "../thread/thread";
import type { Drawer } from "./drawer";
import { MenuIcon, SidebarIcon } from "./icons";
import type { Theme } from "./theme";
import { ThemeMenu } from "./theme-menu";
import { ExportMenu } from "./thread/export-menu";
import { currentTitle } from "./document-title";
import { strings } from "../strings";

/** `drawer`: null if there is only one chat. */
export function ChatHeader({ session, drawer, theme }: { session: Session; drawer: Drawer | null; theme: Theme }) {
  const title = currentTitle(session);
  const thread = session.threads.current.value;
  return (
    <header class="bar">
      {drawer && !(drawer.isShown.value && !drawer.isNarrow.value) && <OpenButton drawer={drawer} />}
      <h1 class="one-line" dir="auto" title={title ?? undefined}>
        {title ?? untitled(thread)}
      </h1>
      {thread && <ExportMenu thread={thread} />}
      {!drawer && <ThemeMenu theme={theme} />}
    </header>
  );
}

function untitled(thread: Thread | null): string {
  if (!thread?.isLoaded.value) return strings.product;
  return thread.isKept ? strings.layout.newChat : strings.layout.temporaryChat;
}

function OpenButton({ drawer }: { drawer: Drawer }) {
  const button = useRef<HTMLButtonElement>(null);
  const isShown = drawer.isShown.value;
  useEffect(() => {
    if (!isShown && drawer.takesFocus("button")) button.current?.focus();
  }, [isShown]);
  return (
    <button
      ref={button}
      type="button"
      class="quiet-button icon-only"
      aria-label={strings.layout.showChats}
      title={strings.layout.showChats}
      aria-expanded={isShown}
      aria-controls="side"
      onClick={() => drawer.open()}
    >
      {drawer.isNarrow.value ? <MenuIcon /> : <SidebarIcon />}
    </button>
  );
}
