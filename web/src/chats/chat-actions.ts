/** Rename, pin, archive, delete and restore a chat. The list shows the change at once, and reverts it with a notice if
 * the server refuses. */

import { errors, type Chat, type ChatInfo } from "turnledger";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";
import type { OptimisticChange } from "./chat-list";
import { chatTitle, type ChatRow } from "./chat-row";

/** Milliseconds in which one click restores a deleted chat. */
const UNDO = 10_000;

export class ChatActions {
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  /** Rename a chat, unless another client has changed it since it was read. Empty: titled by its first words again. */
  async rename(row: ChatRow, title: string): Promise<void> {
    const said = title.trim();
    if (said === (row.title ?? "")) return;
    try {
      const work = this.#update(row.id, (chat) => chat.rename(said, { revision: row.revision }));
      // The list does not know the first words.
      await this.#showOptimistically(row.id, said === "" ? {} : { title: said }, work);
    } catch (problem) {
      const there = problem instanceof errors.RevisionConflict ? problem.details.chat : undefined;
      if (there === undefined) return this.#refused("could not be renamed", row, problem);
      this.#session.chats.put(there);
      this.#session.notices.news(`Somebody else changed this chat meanwhile. It is called “${chatTitle(there)}”.`, {
        stays: undefined,
        action: {
          label: `Rename to “${said}”`,
          run: () => void this.rename({ ...row, ...there, purgeAt: null } as ChatRow, said),
        },
      });
    }
  }

  async pin(row: ChatRow, pinned: boolean): Promise<void> {
    const work = this.#update(row.id, (chat) => chat.pin(pinned));
    await this.#showOptimistically(row.id, { pinned }, work).catch((problem: unknown) =>
      this.#refused(`could not be ${pinned ? "pinned" : "unpinned"}`, row, problem),
    );
  }

  async archive(row: ChatRow, archived: boolean): Promise<void> {
    try {
      const work = this.#update(row.id, (chat) => chat.archive(archived));
      await this.#showOptimistically(row.id, { archived }, work);
    } catch (problem) {
      return this.#refused(`could not be ${archived ? "archived" : "moved back"}`, row, problem);
    }
    const text = archived ? `“${chatTitle(row)}” is in the archive.` : `“${chatTitle(row)}” is back in the list.`;
    this.#session.notices.news(text, {
      stays: UNDO,
      action: { label: "Undo", run: () => void this.archive({ ...row, archived }, !archived) },
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
      return this.#refused("could not be deleted", row, problem);
    }
    notices.news(`“${chatTitle(row)}” is deleted.`, {
      stays: UNDO,
      action: { label: "Undo", run: () => void this.restore(row, isShown) },
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
      return this.#refused("could not be brought back", row, problem);
    }
    if (isOpened) router.open(row.id);
    else notices.news(`“${chatTitle(row)}” is back.`, { action: { label: "Open", run: () => router.open(row.id) } });
  }

  async #update(id: string, change: (chat: Chat) => Promise<ChatInfo>): Promise<void> {
    this.#session.chats.put(await change(this.#session.client.chats.open(id)));
  }

  #showOptimistically(id: string, wish: OptimisticChange, work: Promise<void>): Promise<void> {
    return this.#session.chats.showOptimistically(id, wish, work);
  }

  #refused(what: string, row: ChatRow, problem: unknown): void {
    if (problem instanceof errors.ConversationUnavailable) this.#session.chats.drop(row.id);
    this.#session.notices.problem(new Error(`“${chatTitle(row)}” ${what}: ${errorText(problem)}`));
  }
}
