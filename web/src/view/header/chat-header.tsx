/** The bar above the chat: its title and menu; and, where the chats are hidden, the way to them and to a new chat. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { ChatActions } from "../../chats/chat-actions";
import type { ChatRow } from "../../chats/chat-row";
import { openNewChat } from "../../chats/open-chat";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import type { Drawer } from "../drawer";
import { DrawerButton } from "../drawer-button";
import { Mark, NewChatIcon } from "../icons";
import type { Theme } from "../theme";
import { ThemeMenu } from "../theme-menu";
import { currentTitle } from "../document-title";
import { ChatMenu } from "./chat-menu";
import { ChatTitle, TitleField } from "./chat-title";
import { strings } from "../../strings";

/** `drawer`: null if there is only one chat. */
export function ChatHeader({ session, drawer, theme }: { session: Session; drawer: Drawer | null; theme: Theme }) {
  const title = currentTitle(session);
  const thread = session.threads.current.value;
  const actions = useMemo(() => new ChatActions(session), [session]);
  const renamed = useSignal<ChatRow | null>(null);
  const isRenaming = renamed.value !== null && renamed.value.id === thread?.id.value;
  const areChatsHidden = drawer && (drawer.isNarrow.value || !drawer.isShown.value);
  return (
    <header class="bar">
      {areChatsHidden && <DrawerButton drawer={drawer} />}
      {areChatsHidden && session.mayRun && <NewChatButton session={session} />}
      {!drawer && <Mark />}
      {isRenaming ? (
        <TitleField
          title={title ?? ""}
          onEnd={(text) => {
            const row = renamed.value;
            renamed.value = null;
            if (row && text !== null) void actions.rename(row, text);
          }}
        />
      ) : (
        <ChatTitle title={title ?? untitled(session, thread)} />
      )}
      {drawer && <TagList session={session} tags={thread?.info.value?.tags ?? []} />}
      {thread && <ChatMenu session={session} thread={thread} rename={(row) => (renamed.value = row)} />}
      {!drawer && <ThemeMenu theme={theme} />}
    </header>
  );
}

/** The tags of the chat. One shows all chats with it. */
function TagList({ session, tags }: { session: Session; tags: readonly string[] }) {
  if (tags.length === 0) return null;
  return (
    <ul class="bar-tags" role="list" aria-label={strings.tags.list}>
      {tags.map((tag) => (
        <li key={tag}>
          <button
            type="button"
            class="chip"
            title={strings.tags.show(safeText(tag))}
            onClick={() => session.chats.chooseTag(tag)}
          >
            <span class="one-line" dir="auto">
              {safeText(tag)}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function untitled({ isReader }: Session, thread: Thread | null): string {
  if (!thread?.isLoaded.value) return strings.product;
  if (isReader) return strings.layout.sharedChat;
  return thread.isKept ? strings.layout.newChat : strings.layout.temporaryChat;
}

function NewChatButton({ session }: { session: Session }) {
  return (
    <button
      type="button"
      class="quiet-button icon-only"
      aria-label={strings.layout.newChat}
      title={strings.layout.newChat}
      onClick={() => openNewChat(session)}
    >
      <NewChatIcon />
    </button>
  );
}
