import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import { errors, type ImportReport } from "turnledger";
import { MemoryStorage } from "../../src/browser/storage";
import { AllChats } from "../../src/chats/all-chats";
import { Notices } from "../../src/session/notices";
import type { Session } from "../../src/session/session";
import { StorageScope } from "../../src/session/storage-scope";

/** A server with these chats. `broken`: deleting these fails. */
class Household {
  readonly broken = new Map<string, Error>();
  readonly dropped: string[] = [];
  readonly asked: unknown[] = [];
  readonly notices = new Notices();
  readonly dialog = signal<{ kind: "settings" } | null>({ kind: "settings" });
  reports: ImportReport[] = [];
  fixed: string | null = null;
  newChats = 0;

  constructor(public chats: string[]) {}

  get all(): AllChats {
    const remove = async (id: string): Promise<void> => {
      const problem = this.broken.get(id);
      if (problem) throw problem;
      this.chats = this.chats.filter((each) => each !== id);
    };
    const client = {
      export: async function* (this: void) {
        yield* ["one", "two"];
      },
      importChats: async (_: Blob, options: object) => (this.asked.push(options), this.reports),
      chats: {
        list: (options: object) => ({
          all: async () => (this.asked.push(options), this.chats.map((id) => ({ id }))),
        }),
        open: (id: string) => ({ delete: () => remove(id) }),
      },
    };
    const session = {
      client,
      storage: new StorageScope("own", new MemoryStorage()),
      chats: { scopes: { fixed: this.fixed }, drop: (id: string) => this.dropped.push(id) },
      router: { openNew: () => this.newChats++ },
      threads: { current: signal({ isKept: true, id: signal(this.chats[0] ?? null) }) },
      notices: this.notices,
      dialog: this.dialog,
    };
    return new AllChats(session as unknown as Session);
  }
}

describe("all chats", () => {
  it("are exported as one file", async () => {
    const { all } = new Household([]);
    expect(await (await all.export())?.text()).toBe("one\ntwo\n");
    expect(all.status.value).toBe("Exported all chats.");
  });

  it("are imported into the scope of the page, with a report", async () => {
    const household = new Household([]);
    household.fixed = "shop";
    household.reports = [
      { line: 1, did: "imported", chat: "conv_1" },
      { line: 3, did: "refused", why: "This is no chat." },
    ];
    const { all } = household;
    await all.import(new Blob(["…"]));
    expect([all.status.value, all.reports.value, household.asked]).toEqual([
      "Imported 1 chat.",
      household.reports,
      [{ scope: "shop" }],
    ]);
  });

  it("are deleted in two steps: only those that the first has counted", async () => {
    const household = new Household(["a", "b", "c", "d", "e", "f"]);
    const { all } = household;
    await all.delete();
    expect(household.chats.length).toBe(6);
    await all.askToDelete();
    expect(all.condemned.value?.length).toBe(6);
    all.reset();
    await all.delete();
    expect(household.chats.length).toBe(6);
    await all.askToDelete();
    household.chats.push("later");
    household.broken.set("b", new errors.ConversationUnavailable("conversation_deleted", "It was deleted."));
    await all.delete();
    expect(household.chats.filter((each) => each !== "b")).toEqual(["later"]);
    expect([household.dropped.sort().join(""), household.newChats]).toEqual(["abcdef", 1]);
    expect([all.status.value, all.condemned.value, all.isBusy.value]).toEqual(["Deleted 6 chats.", null, false]);
  });

  it("stop being deleted at the first failure, which is reported", async () => {
    const household = new Household(Array.from({ length: 20 }, (_, number) => `chat ${number}`));
    household.broken.set("chat 0", new Error("The server is not responding."));
    const { all } = household;
    await all.askToDelete();
    await all.delete();
    expect(all.problem.value).toBe("The server is not responding.");
    expect(household.chats.length).toBeGreaterThan(10);
    expect(household.notices.shown.value).toEqual([]);
  });

  it("report the result as a notice if the dialog was closed", async () => {
    const household = new Household(["a"]);
    const { all } = household;
    await all.askToDelete();
    household.dialog.value = null;
    await all.delete();
    expect(household.notices.shown.value.map(({ text }) => text)).toEqual(["Deleted 1 chat."]);
  });

  it("that do not exist need no second step", async () => {
    const { all } = new Household([]);
    await all.askToDelete();
    expect([all.condemned.value, all.status.value]).toEqual([null, "There are no chats to delete."]);
  });
});
