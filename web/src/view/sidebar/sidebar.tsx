/** The chats beside the thread. */

import type { Session } from "../../session/session";

export function SidebarView({ session }: { session: Session }) {
  const here = session.threads.current.value?.id.value;
  return (
    <nav class="sidebar" aria-label="Chats">
      <button type="button" class="new-chat" onClick={() => session.place.openNew()}>
        New chat
      </button>
      <ul>
        {session.chats.rows.value.map((chat) => (
          <li key={chat.id}>
            <a href={`#${chat.id}`} aria-current={chat.id === here ? "page" : undefined} dir="auto">
              {chat.title ?? "New chat"}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
