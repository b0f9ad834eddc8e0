/** Rename, pin, archive, delete and restore a chat. The list shows the change at once, and reverts it with a notice if
 * the server refuses. */

import { errors, type Chat, type ChatInfo } from "turnledger";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";
import type { OptimisticChange } from "./chat-list";
import { shortTitle, type ChatRow } from "./chat-row";
import { strings } from "../strings";

/** Milliseconds in which one click restores a deleted chat. */
export const UNDO_TIME = 10_000;

export class ChatActions {
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  /** Rename a chat, unless another client has changed it since it was read. Empty: titled by its first words again. */
  async rename(row: ChatRow, title: string): Promise<void> {
    const given = title.trim();
    if (given === (row.title ?? "")) return;
    try {
      const work = this.#update(row.id, (chat) => chat.rename(given, { revision: row.revision }));
      // The list does not know the first words.
      await this.#showOptimistically(row.id, given === "" ? {} : { title: given }, work);
    } catch (problem) {
      const current = problem instanceof errors.RevisionConflict ? problem.details.chat : undefined;
      if (current === undefined) return this.#refused(strings.chats.notRenamed, row, problem);
      this.#session.chats.put(current);
      this.#session.notices.news(strings.chats.changedElsewhere(shortTitle(current)), {
        stays: undefined,
        action: {
          label: strings.chats.renameTo(shortTitle({ title: given })),
          run: () => void this.rename({ ...row, ...current, purgeAt: null } as ChatRow, given),
        },
      });
    }
  }

  async pin(row: ChatRow, pinned: boolean): Promise<void> {
    const work = this.#update(row.id, (chat) => chat.pin(pinned));
    await this.#showOptimistically(row.id, { pinned }, work).catch((problem: unknown) =>
      this.#refused(pinned ? strings.chats.notPinned : strings.chats.notUnpinned, row, problem),
    );
  }

  async archive(row: ChatRow, archived: boolean): Promise<void> {
    try {
      const work = this.#update(row.id, (chat) => chat.archive(archived));
      await this.#showOptimistically(row.id, { archived }, work);
    } catch (problem) {
      return this.#refused(archived ? strings.chats.notArchived : strings.chats.notUnarchived, row, problem);
    }
    const { wasArchived, wasUnarchived } = strings.chats;
    this.#session.notices.news((archived ? wasArchived : wasUnarchived)(shortTitle(row)), {
      stays: UNDO_TIME,
      action: { label: strings.common.undo, run: () => void this.archive({ ...row, archived }, !archived) },
    });
  }

  /** Delete a chat at once; it can be restored for a while. */
  async delete(row: ChatRow): Promise<void> {
    const { client, chats, notices, router, threads } = this.#session;
    const isShown = threads.current.peek()?.id.peek() === row.id;
    if (isShown) router.openNew();
    try {
      const work = client.chats.open(row.id).delete();
      await this.#showOptimistically(
        row.id,
        { isGone: true },
        work.then(() => chats.drop(row.id)),
      );
    } catch (problem) {
      if (isShown) router.open(row.id);
      return this.#refused(strings.chats.notDeleted, row, problem);
    }
    notices.news(strings.chats.wasDeleted(shortTitle(row)), {
      stays: UNDO_TIME,
      action: { label: strings.common.undo, run: () => void this.restore(row, isShown) },
    });
  }

  /** Restore a deleted chat, and open it if it was open. */
  async restore(row: ChatRow, isOpened = false): Promise<void> {
    const { client, chats, notices, router } = this.#session;
    try {
      const restore = async (): Promise<void> => {
        const restored = await client.chats.open(row.id).restore();
        chats.drop(row.id);
        chats.put(restored);
      };
      // It leaves the list of deleted chats.
      await (row.purgeAt === null ? restore() : this.#showOptimistically(row.id, { isGone: true }, restore()));
    } catch (problem) {
      return this.#refused(strings.chats.notRestored, row, problem);
    }
    if (isOpened) router.open(row.id);
    else {
      const action = { label: strings.chats.open, run: () => router.open(row.id) };
      notices.news(strings.chats.wasRestored(shortTitle(row)), { action });
    }
  }

  async #update(id: string, change: (chat: Chat) => Promise<ChatInfo>): Promise<void> {
    this.#session.chats.put(await change(this.#session.client.chats.open(id)));
  }

  #showOptimistically(id: string, change: OptimisticChange, work: Promise<void>): Promise<void> {
    return this.#session.chats.showOptimistically(id, change, work);
  }

  #refused(text: (title: string, reason: string) => string, row: ChatRow, problem: unknown): void {
    if (problem instanceof errors.ConversationUnavailable) this.#session.chats.drop(row.id);
    this.#session.notices.problem(new Error(text(shortTitle(row), errorText(problem))));
  }
}
