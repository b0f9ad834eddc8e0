import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { errors } from "turnledger";
import { ChatPages } from "../../src/chats/live-chat-pages";
import { change, chat, idOf, settled, Shop } from "./fakes";

const many = (count: number) =>
  Array.from({ length: count }, (_, at) => chat({ id: idOf(at), title: `Chat ${at}`, touchedAt: 1_000 - at }));
const shelfOf = (shop: Shop, scope: string | null = null) => new ChatPages(shop.client, { kind: "chats", scope });
const titles = (pages: ChatPages) => pages.rows.value.map(({ title }) => title);

/** A shop, and a list of its chats that has read as many as are needed. */
async function opened(chats: Shop["chats"], needed = 1, scope: string | null = null) {
  const shop = new Shop(chats);
  const pages = shelfOf(shop, scope);
  await pages.need(needed);
  return { shop, pages };
}

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** Let those that have to be looked up be looked up. */
async function gathered(): Promise<void> {
  vi.advanceTimersByTime(60);
  await settled();
}

describe("reading", () => {
  test("reads as many chats as needed, and returns the position to follow from", async () => {
    const shop = new Shop(many(7));
    const pages = shelfOf(shop);
    expect(await pages.need(3)).toBe("as of");
    expect(titles(pages)).toEqual(["Chat 0", "Chat 1", "Chat 2", "Chat 3"]);
    expect(pages.isWhole.value).toBe(false);
    expect(await pages.need(4)).toBeUndefined();
    expect(shop.asked).toEqual(["page", "pinned", "page"]);
    await pages.need(100);
    expect(titles(pages)).toHaveLength(7);
    expect(pages.isWhole.value).toBe(true);
  });

  test("reads all for a call during a read, and no less for one that needs fewer", async () => {
    const pages = shelfOf(new Shop(many(7)));
    const first = pages.need(1);
    const all = pages.need(Infinity);
    void pages.need(2); // the list has drawn its first lines
    await all;
    expect(titles(pages)).toHaveLength(7);
    expect(await first).toBe("as of");
  });

  test("finds pinned chats at once, however old they are", async () => {
    const chats = many(7);
    chats[6] = { ...chats[6]!, pinned: true };
    const { pages } = await opened(chats);
    expect(titles(pages)).toEqual(["Chat 0", "Chat 1", "Chat 6"]);
  });

  test("reports a failed page, and reads again from the start", async () => {
    const shop = new Shop(many(3));
    const pages = shelfOf(shop);
    shop.problem = new errors.ServerUnavailable("server_unavailable", "Nobody is there.");
    expect(await pages.need(1)).toBeUndefined();
    expect(pages.problem.value).toBe(shop.problem);
    shop.problem = null;
    await pages.refresh();
    expect(pages.problem.value).toBeNull();
    expect(titles(pages)).toEqual(["Chat 0", "Chat 1"]);
  });

  test("does not revert a chat that was deleted or renamed during the read", async () => {
    const shop = new Shop(many(2));
    const pages = shelfOf(shop);
    shop.isHeld = true;
    const reading = pages.need(1);
    await settled();
    pages.applyChange(change("chat.deleted", { id: idOf(0) }));
    pages.applyChange(change("chat.created", { id: idOf(9), title: "Made meanwhile", touchedAt: 2_000 }));
    await shop.release();
    await reading;
    expect(titles(pages)).toEqual(["Made meanwhile", "Chat 1"]);
    shop.isHeld = true;
    shop.chats.shift();
    const again = pages.refresh();
    await settled();
    pages.applyChange(change("chat.changed", { id: idOf(1), title: "Renamed meanwhile", touchedAt: 999, revision: 2 }));
    await shop.release();
    await again;
    expect(titles(pages)).toEqual(["Renamed meanwhile"]);
  });
});

describe("following", () => {
  test("applies a change without a request", async () => {
    const { shop, pages } = await opened(many(2));
    shop.asked.length = 0;
    pages.applyChange(change("chat.created", { id: idOf(5), title: "New", touchedAt: 3_000 }));
    pages.applyChange(change("chat.changed", { id: idOf(1), title: "Renamed", revision: 2, at: 9_000 }));
    expect(titles(pages)).toEqual(["New", "Chat 0", "Renamed"]);
    pages.applyChange(change("turn.running", { id: idOf(1), turn: "turn_1" }));
    expect(pages.row(idOf(1))?.isRunning).toBe(true);
    pages.applyChange(change("turn.committed", { id: idOf(1), turn: "turn_1", at: 4_000 }));
    expect(titles(pages)).toEqual(["Renamed", "New", "Chat 0"]);
    expect(pages.row(idOf(1))?.isRunning).toBe(false);
    pages.applyChange(change("chat.changed", { id: idOf(0), archived: true, revision: 2 }));
    pages.applyChange(change("chat.deleted", { id: idOf(5) }));
    expect(titles(pages)).toEqual(["Renamed"]);
    await gathered();
    expect(shop.asked).toEqual([]);
  });

  test("ignores a change that is older than the row", async () => {
    const { pages } = await opened([chat({ id: idOf(0), title: "As it is", revision: 5 })]);
    pages.applyChange(change("chat.changed", { id: idOf(0), title: "As it was", revision: 4 }));
    expect(titles(pages)).toEqual(["As it is"]);
  });

  test("ignores the end of an earlier turn while a later one runs", async () => {
    const { pages } = await opened(many(1));
    pages.applyChange(change("turn.running", { id: idOf(0), turn: "turn_1" }));
    pages.applyChange(change("turn.running", { id: idOf(0), turn: "turn_2" }));
    pages.applyChange(change("turn.stopped", { id: idOf(0), turn: "turn_1" }));
    expect(pages.row(idOf(0))?.isRunning).toBe(true);
    pages.applyChange(change("turn.failed", { id: idOf(0), turn: "turn_2" }));
    expect(pages.row(idOf(0))?.isRunning).toBe(false);
    pages.applyChange(change("turn.running", { id: idOf(0), turn: "turn_3", branch: "branch_9" }));
    expect(pages.row(idOf(0))?.isRunning).toBe(false);
  });

  test("looks up a used chat beyond the read pages, and sorts it in", async () => {
    const { shop, pages } = await opened(many(7));
    shop.chats[6] = { ...shop.chats[6]!, touchedAt: 5_000 };
    pages.applyChange(change("turn.committed", { id: idOf(6), turn: "turn_1", at: 5_000 }));
    pages.applyChange(change("chat.changed", { id: idOf(5), title: "Old, and renamed", revision: 2 }));
    await gathered();
    expect(titles(pages)).toEqual(["Chat 6", "Chat 0", "Chat 1"]);
    expect(shop.asked.slice(-2)).toEqual([`info ${idOf(6)}`, `info ${idOf(5)}`]);
  });

  test("reads the list if many chats are missing", async () => {
    const { shop, pages } = await opened(many(40));
    shop.asked.length = 0;
    for (let at = 20; at < 40; at++) pages.applyChange(change("chat.restored", { id: idOf(at), revision: 2 }));
    await gathered();
    expect(shop.asked).toEqual(["page", "pinned"]);
  });

  test("does not count an import as use", async () => {
    const { shop, pages } = await opened(many(2));
    const imported = { id: idOf(7, 1_000), title: "Imported", touchedAt: 1 };
    shop.chats.push(chat(imported));
    pages.applyChange(change("chat.created", { ...imported, at: 90_000_000 }));
    await gathered();
    expect(titles(pages)).toEqual(["Chat 0", "Chat 1", "Imported"]);
  });

  test("ignores chats of other scopes", async () => {
    const { shop, pages } = await opened([chat({ id: idOf(0), scope: "shop", title: "Of the shop" })], 1, "shop");
    pages.applyChange(change("chat.created", { id: idOf(1), scope: "wiki" }));
    pages.applyChange(change("turn.committed", { id: idOf(2), scope: "wiki", turn: "turn_1" }));
    await gathered();
    expect(titles(pages)).toEqual(["Of the shop"]);
    expect(shop.asked).toEqual(["page"]);
  });
});

describe("after a gap", () => {
  test("rows stay until they are read again, as far as needed", async () => {
    const { shop, pages } = await opened(many(9), 5);
    const seen: number[] = [];
    pages.rows.subscribe((rows) => seen.push(rows.length));
    shop.chats = many(9)
      .filter((_, at) => at !== 1)
      .map((each) => ({ ...each, title: `${each.title} again`, revision: 2 }));
    pages.applyChange({ type: "gap", position: "2", at: 0 });
    await settled();
    expect(titles(pages)).toEqual([
      "Chat 0 again",
      "Chat 2 again",
      "Chat 3 again",
      "Chat 4 again",
      "Chat 5 again",
      "Chat 6 again",
    ]);
    expect(Math.min(...seen)).toBeGreaterThanOrEqual(5);
  });

  test("a second gap during the read starts it again", async () => {
    const { shop, pages } = await opened(many(3), 3);
    shop.isHeld = true;
    pages.applyChange({ type: "gap", position: "2", at: 0 });
    await settled();
    shop.chats = [chat({ id: idOf(8), title: "The only one left" })];
    pages.applyChange({ type: "gap", position: "3", at: 0 });
    await shop.release();
    expect(titles(pages)).toEqual(["The only one left"]);
  });
});
