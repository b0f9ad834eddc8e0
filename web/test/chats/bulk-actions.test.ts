import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import { errors } from "turnledger";
import { BulkActions } from "../../src/chats/bulk-actions";
import { Notices } from "../../src/session/notices";
import type { Session } from "../../src/session/session";
import { idOf, row, settled } from "./fakes";

const rows = [0, 1, 2, 3, 4, 5].map((number) => row({ id: idOf(number) }));

/** A server that refuses some chats, and what became of the others. */
class Household {
  readonly broken = new Map<string, Error>();
  readonly done: string[] = [];
  readonly shownAs: string[] = [];
  readonly notices = new Notices();
  readonly opened: string[] = [];
  mostAtOnce = 0;
  #running = 0;

  get bulk(): BulkActions {
    const work = async (what: string, id: string): Promise<void> => {
      this.mostAtOnce = Math.max(this.mostAtOnce, ++this.#running);
      await Promise.resolve();
      this.#running -= 1;
      const problem = this.broken.get(id);
      if (problem) throw problem;
      this.done.push(`${what} ${rows.findIndex((each) => each.id === id)}`);
    };
    const session = {
      client: {
        chats: {
          open: (id: string) => ({
            archive: (archived: boolean) => work(archived ? "archive" : "unarchive", id),
            delete: () => work("delete", id),
            restore: () => work("restore", id),
          }),
        },
      },
      chats: {
        put: () => {},
        drop: () => {},
        showOptimistically: (id: string, _: object, working: Promise<void>) => (this.shownAs.push(id), working),
      },
      router: { openNew: () => this.opened.push("new"), open: (id: string) => this.opened.push(id) },
      threads: { current: signal({ id: signal(rows[0]!.id) }) },
      notices: this.notices,
    };
    return new BulkActions(session as unknown as Session);
  }

  get told(): string[] {
    return this.notices.shown.value.map(({ text }) => text);
  }

  async undo(): Promise<void> {
    this.notices.shown.value.at(-1)?.action?.run();
    for (let round = 0; round < 5; round++) await settled();
  }
}

describe("several chats", () => {
  it("are deleted a few at a time, and restored by one undo, which opens the shown one again", async () => {
    const house = new Household();
    await house.bulk.delete(rows);
    expect([house.done.length, house.shownAs.length, house.mostAtOnce]).toEqual([6, 6, 4]);
    expect([house.told, house.opened]).toEqual([["Deleted 6 chats."], ["new"]]);
    await house.undo();
    expect(house.done.filter((each) => each.startsWith("restore")).length).toBe(6);
    expect(house.opened).toEqual(["new", rows[0]!.id]);
  });

  it("that the server refuses are reported, and not undone", async () => {
    const house = new Household();
    house.broken.set(rows[0]!.id, new Error("No."));
    house.broken.set(rows[1]!.id, new errors.ConversationDeleted("conversation_deleted", "Gone."));
    await house.bulk.delete(rows.slice(0, 3));
    expect(house.told).toEqual(["Could not delete 2 chats: No.", "Deleted 1 chat."]);
    expect(house.opened).toEqual(["new", rows[0]!.id]); // it was shown, and is still there
    await house.undo();
    expect(house.done).toEqual(["delete 2", "restore 2"]);
  });

  it("are archived, and unarchived by one undo", async () => {
    const house = new Household();
    await house.bulk.archive(rows.slice(1, 3), true);
    await house.undo();
    expect(house.done).toEqual(["archive 1", "archive 2", "unarchive 1", "unarchive 2"]);
    expect(house.told).toEqual(["Archived 2 chats.", "Unarchived 2 chats."]);
  });
});
