/** What is going on in the sidebar: nothing that outlives it. */

import { signal } from "@preact/signals";
import { Arming } from "../../chats/confirm-delete";
import { Changing } from "../../chats/chat-actions";
import { Today } from "../../chats/date-groups";
import type { Row } from "../../chats/chat-row";
import { Search } from "../../chats/chat-search";
import type { Session } from "../../session/session";

export class SidebarState {
  readonly session: Session;
  readonly changing: Changing;
  readonly search: Search;
  readonly arming = new Arming();
  readonly today = new Today();
  /** The chat that is being renamed, as it was, and what stands in the field. */
  readonly editing = signal<{ readonly row: Row; readonly text: string } | null>(null);
  /** The line that Tab leads to. */
  readonly active = signal<string | null>(null);
  /** Lines whose buttons are there: that under the pointer, and that whose menu is open. */
  readonly hovered = signal<string | null>(null);
  readonly opened = signal<string | null>(null);
  /** Said to who does not see it. */
  readonly said = signal("");

  constructor(session: Session) {
    this.session = session;
    this.changing = new Changing(session);
    this.search = new Search(session);
  }

  /** Say that a chat is to be deleted: the second time it is. `isSecond`: where it is known to be that. */
  delete(row: Row, isSecond = false): void {
    if (!isSecond && !this.arming.say(row.id)) return;
    this.arming.disarm();
    this.search.drop(row.id);
    void this.changing.delete(row);
  }

  rename(row: Row): void {
    this.arming.disarm();
    this.editing.value = { row, text: row.title ?? "" };
  }

  /** End the renaming, with what stands in the field or without. */
  renamed(isKept: boolean): void {
    const { row, text } = this.editing.peek() ?? {};
    this.editing.value = null;
    if (row && isKept && text !== undefined) void this.changing.rename(row, text);
  }

  close(): void {
    this.arming.disarm();
    this.search.close();
    this.today.close();
  }
}
