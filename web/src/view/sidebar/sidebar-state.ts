/** State of the sidebar that does not outlive it. */

import { signal } from "@preact/signals";
import { BulkActions } from "../../chats/bulk-actions";
import { SecondPress } from "../second-press";
import { ChatActions } from "../../chats/chat-actions";
import { CurrentDay } from "../../chats/date-groups";
import type { ChatRow } from "../../chats/chat-row";
import { ChatSelection } from "../../chats/chat-selection";
import { ChatSearch } from "../../chats/chat-search";
import type { Session } from "../../session/session";

/** The armed action of `deletion` that concerns the selection. */
export const SELECTION = "selection";

export class SidebarState {
  readonly session: Session;
  readonly actions: ChatActions;
  readonly search: ChatSearch;
  readonly selection: ChatSelection;
  readonly bulk: BulkActions;
  readonly deletion = new SecondPress();
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
    this.selection = new ChatSelection(session.chats.rows);
    this.bulk = new BulkActions(session);
  }

  startSelection(id?: string): void {
    this.deletion.disarm();
    this.selection.start(id);
    focusList();
  }

  stopSelection(): void {
    this.deletion.disarm();
    this.selection.stop();
    focusList();
  }

  /** Escape: the first keeps the chats that a second press would have deleted. */
  leaveSelection(): void {
    if (this.deletion.armed.peek() !== null) this.deletion.disarm();
    else this.stopSelection();
  }

  /** Select all chats of the list, also those that it has not read yet. */
  async selectAll(isSelected: boolean): Promise<void> {
    this.deletion.disarm();
    if (isSelected) await this.session.chats.need(Infinity);
    if (this.selection.isOn.peek()) this.selection.setAll(isSelected);
  }

  archiveSelected(archived: boolean): void {
    const rows = this.selection.rows.peek();
    this.stopSelection();
    void this.bulk.archive(rows, archived);
  }

  /** Delete the selected chats on the second press. */
  deleteSelected(): void {
    const rows = this.selection.rows.peek();
    if (rows.length === 0 || !this.deletion.press(SELECTION)) return;
    this.stopSelection();
    for (const { id } of rows) this.search.drop(id);
    void this.bulk.delete(rows);
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

/** Focus the list after rendering, before the next key: what had the focus is gone, or the user goes on there. */
function focusList(): void {
  queueMicrotask(() =>
    document.querySelector<HTMLElement>(".sidebar .lines .line-main[tabindex='0']")?.focus({ preventScroll: true }),
  );
}
