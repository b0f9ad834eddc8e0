/** Archive, delete and restore several chats at once. As for one, the list shows it at once, a notice offers to undo
 * it, and chats that the server refuses are back with a notice. */

import { errors, type Chat } from "turnledger";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";
import { UNDO_TIME } from "./chat-actions";
import type { OptimisticChange } from "./chat-list";
import type { ChatRow } from "./chat-row";
import { strings } from "../strings";

/** How many requests run at once. */
const PARALLEL = 4;

type BulkSession = Pick<Session, "client" | "chats" | "notices" | "router" | "threads">;

export class BulkActions {
  readonly #session: BulkSession;

  constructor(session: BulkSession) {
    this.#session = session;
  }

  async archive(rows: readonly ChatRow[], archived: boolean): Promise<void> {
    const { chats, notices } = this.#session;
    const { wasArchived, wasUnarchived, notArchived, notUnarchived } = strings.bulk;
    const done = await this.#each(rows, { archived }, archived ? notArchived : notUnarchived, async (chat) => {
      chats.put(await chat.archive(archived));
    });
    if (done.length === 0) return;
    notices.news((archived ? wasArchived : wasUnarchived)(done.length), {
      stays: UNDO_TIME,
      action: {
        label: strings.common.undo,
        run: () => void this.archive(done.map((row) => ({ ...row, archived })), !archived),
      },
    });
  }

  /** Delete them at once; they can be restored for a while. */
  async delete(rows: readonly ChatRow[]): Promise<void> {
    const { chats, notices, router, threads } = this.#session;
    const shown = threads.current.peek()?.id.peek() ?? null;
    const wasShown = rows.some(({ id }) => id === shown);
    if (wasShown) router.openNew();
    const done = await this.#each(rows, { isGone: true }, strings.bulk.notDeleted, async (chat, { id }) => {
      await chat.delete();
      chats.drop(id);
    });
    const opened = done.find(({ id }) => id === shown)?.id ?? null;
    if (wasShown && opened === null && shown !== null) router.open(shown);
    if (done.length === 0) return;
    notices.news(strings.bulk.wasDeleted(done.length), {
      stays: UNDO_TIME,
      action: { label: strings.common.undo, run: () => void this.#restore(done, opened) },
    });
  }

  /** Restore deleted chats. `opened`: the one to open again. */
  async #restore(rows: readonly ChatRow[], opened: string | null): Promise<void> {
    const { chats, notices, router } = this.#session;
    const done = await this.#each(rows, {}, strings.bulk.notRestored, async (chat, { id }) => {
      const restored = await chat.restore();
      chats.drop(id);
      chats.put(restored);
    });
    if (done.length > 0) notices.news(strings.bulk.wasRestored(done.length));
    if (opened !== null && done.some(({ id }) => id === opened)) router.open(opened);
  }

  /** Do the work for each chat, and return those for which it was done. */
  async #each(
    rows: readonly ChatRow[],
    change: OptimisticChange,
    refused: (count: number, reason: string) => string,
    work: (chat: Chat, row: ChatRow) => Promise<void>,
  ): Promise<ChatRow[]> {
    const { client, chats, notices } = this.#session;
    const done: ChatRow[] = [];
    const problems: unknown[] = [];
    const inTurn = limited(PARALLEL);
    const run = async (row: ChatRow): Promise<void> => {
      try {
        const working = inTurn(() => work(client.chats.open(row.id), row));
        await chats.showOptimistically(row.id, change, working);
        done.push(row);
      } catch (problem) {
        if (problem instanceof errors.ConversationUnavailable) chats.drop(row.id);
        problems.push(problem);
      }
    };
    await Promise.all(rows.map(run));
    if (problems.length > 0) notices.problem(new Error(refused(problems.length, errorText(problems[0]))));
    return done;
  }
}

/** Returns a function that runs work while fewer than this many others run. */
function limited(count: number): (work: () => Promise<void>) => Promise<void> {
  const lanes = Array.from({ length: count }, () => Promise.resolve());
  let next = 0;
  return (work) => {
    const lane = next++ % count;
    const run = lanes[lane]!.then(work);
    lanes[lane] = run.catch(() => {});
    return run;
  };
}
