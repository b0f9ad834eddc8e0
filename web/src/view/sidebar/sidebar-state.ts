/** State of the sidebar that does not outlive it. */

import { signal } from "@preact/signals";
import { ConfirmDelete } from "../../chats/confirm-delete";
import { ChatActions } from "../../chats/chat-actions";
import { CurrentDay } from "../../chats/date-groups";
import type { ChatRow } from "../../chats/chat-row";
import { ChatSearch } from "../../chats/chat-search";
import type { Session } from "../../session/session";

export class SidebarState {
  readonly session: Session;
  readonly actions: ChatActions;
  readonly search: ChatSearch;
  readonly deletion = new ConfirmDelete();
  readonly today = new CurrentDay();
  /** The chat that is being renamed, and the text in the field. */
  readonly editing = signal<{ readonly row: ChatRow; readonly text: string } | null>(null);
  /** The line that Tab focuses. */
  readonly active = signal<string | null>(null);
  /** Lines that show their menu button: the hovered one, the one with the focus, and the one whose menu is open. */
  readonly hovered = signal<string | null>(null);
  readonly focused = signal<string | null>(null);
  readonly opened = signal<string | null>(null);

  constructor(session: Session) {
    this.session = session;
    this.actions = new ChatActions(session);
    this.search = new ChatSearch(session);
  }

  /** Delete a chat on the second press. `isSecond`: where that is known. */
  delete(row: ChatRow, isSecond = false): void {
    if (!isSecond && !this.deletion.press(row.id)) return;
    this.deletion.disarm();
    this.search.drop(row.id);
    void this.actions.delete(row);
  }

  rename(row: ChatRow): void {
    this.deletion.disarm();
    this.editing.value = { row, text: row.title ?? "" };
  }

  /** End renaming, and keep the text or not. */
  renamed(isKept: boolean): void {
    const { row, text } = this.editing.peek() ?? {};
    this.editing.value = null;
    if (row && isKept && text !== undefined) void this.actions.rename(row, text);
  }

  close(): void {
    this.deletion.disarm();
    this.search.close();
    this.today.close();
  }
}
