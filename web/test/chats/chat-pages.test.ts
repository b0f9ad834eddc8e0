import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { errors } from "turnledger";
import { Shelf } from "../../src/chats/chat-pages";
import { change, chat, idOf, settled, Shop } from "./fakes";

const many = (count: number) =>
  Array.from({ length: count }, (_, at) => chat({ id: idOf(at), title: `Chat ${at}`, touchedAt: 1_000 - at }));
const shelfOf = (shop: Shop, scope: string | null = null) => new Shelf(shop.client, { kind: "chats", scope });
const titles = (shelf: Shelf) => shelf.rows.value.map(({ title }) => title);

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** Let those that have to be looked up be looked up. */
async function gathered(): Promise<void> {
  vi.advanceTimersByTime(60);
  await settled();
}

describe("reading", () => {
  test("goes as far as is needed, and tells behind what to follow", async () => {
    const shop = new Shop(many(7));
    const shelf = shelfOf(shop);
    expect(await shelf.need(3)).toBe("as of");
    expect(titles(shelf)).toEqual(["Chat 0", "Chat 1", "Chat 2", "Chat 3"]);
    expect(shelf.isWhole.value).toBe(false);
    expect(await shelf.need(4)).toBeUndefined();
    expect(shop.asked).toEqual(["page", "pinned", "page"]);
    await shelf.need(100);
    expect(titles(shelf)).toHaveLength(7);
    expect(shelf.isWhole.value).toBe(true);
  });

  test("finds those that are pinned at once, however old they are", async () => {
    const chats = many(7);
    chats[6] = { ...chats[6]!, pinned: true };
    const shelf = shelfOf(new Shop(chats));
    await shelf.need(1);
    expect(titles(shelf)).toEqual(["Chat 0", "Chat 1", "Chat 6"]);
  });

  test("what fails is told, and read again from the beginning", async () => {
    const shop = new Shop(many(3));
    const shelf = shelfOf(shop);
    shop.problem = new errors.ServerUnavailable("server_unavailable", "Nobody is there.");
    expect(await shelf.need(1)).toBeUndefined();
    expect(shelf.problem.value).toBe(shop.problem);
    shop.problem = null;
    await shelf.refresh();
    expect(shelf.problem.value).toBeNull();
    expect(titles(shelf)).toEqual(["Chat 0", "Chat 1"]);
  });

  test("a chat that was deleted or renamed while it was being read is not shown as it was", async () => {
    const shop = new Shop(many(2));
    const shelf = shelfOf(shop);
    shop.isHeld = true;
    const reading = shelf.need(1);
    await settled();
    shelf.follow(change("chat.deleted", { id: idOf(0) }));
    shelf.follow(change("chat.created", { id: idOf(9), title: "Made meanwhile", touchedAt: 2_000 }));
    await shop.release();
    await reading;
    expect(titles(shelf)).toEqual(["Made meanwhile", "Chat 1"]);
    shop.isHeld = true;
    shop.chats.shift();
    const again = shelf.refresh();
    await settled();
    shelf.follow(change("chat.changed", { id: idOf(1), title: "Renamed meanwhile", touchedAt: 999, revision: 2 }));
    await shop.release();
    await again;
    expect(titles(shelf)).toEqual(["Renamed meanwhile"]);
  });
});

describe("following", () => {
  test("takes what a change tells, and asks for nothing", async () => {
    const shop = new Shop(many(2));
    const shelf = shelfOf(shop);
    await shelf.need(1);
    shop.asked.length = 0;
    shelf.follow(change("chat.created", { id: idOf(5), title: "New", touchedAt: 3_000 }));
    shelf.follow(change("chat.changed", { id: idOf(1), title: "Renamed", revision: 2, at: 9_000 }));
    expect(titles(shelf)).toEqual(["New", "Chat 0", "Renamed"]);
    shelf.follow(change("turn.running", { id: idOf(1), turn: "turn_1" }));
    expect(shelf.row(idOf(1))?.isRunning).toBe(true);
    shelf.follow(change("turn.committed", { id: idOf(1), turn: "turn_1", at: 4_000 }));
    expect(titles(shelf)).toEqual(["Renamed", "New", "Chat 0"]);
    expect(shelf.row(idOf(1))?.isRunning).toBe(false);
    shelf.follow(change("chat.changed", { id: idOf(0), archived: true, revision: 2 }));
    shelf.follow(change("chat.deleted", { id: idOf(5) }));
    expect(titles(shelf)).toEqual(["Renamed"]);
    await gathered();
    expect(shop.asked).toEqual([]);
  });

  test("a change that is older than what is known changes nothing", async () => {
    const shelf = shelfOf(new Shop([chat({ id: idOf(0), title: "As it is", revision: 5 })]));
    await shelf.need(1);
    shelf.follow(change("chat.changed", { id: idOf(0), title: "As it was", revision: 4 }));
    expect(titles(shelf)).toEqual(["As it is"]);
  });

  test("of a chat that runs again the end of an earlier turn says nothing", async () => {
    const shelf = shelfOf(new Shop(many(1)));
    await shelf.need(1);
    shelf.follow(change("turn.running", { id: idOf(0), turn: "turn_1" }));
    shelf.follow(change("turn.running", { id: idOf(0), turn: "turn_2" }));
    shelf.follow(change("turn.stopped", { id: idOf(0), turn: "turn_1" }));
    expect(shelf.row(idOf(0))?.isRunning).toBe(true);
    shelf.follow(change("turn.failed", { id: idOf(0), turn: "turn_2" }));
    expect(shelf.row(idOf(0))?.isRunning).toBe(false);
  });

  test("a chat beyond what was read is looked up when it is used, and stands where it belongs", async () => {
    const shop = new Shop(many(7));
    const shelf = shelfOf(shop);
    await shelf.need(1);
    shop.chats[6] = { ...shop.chats[6]!, touchedAt: 5_000 };
    shelf.follow(change("turn.committed", { id: idOf(6), turn: "turn_1", at: 5_000 }));
    shelf.follow(change("chat.changed", { id: idOf(5), title: "Old, and renamed", revision: 2 }));
    await gathered();
    expect(titles(shelf)).toEqual(["Chat 6", "Chat 0", "Chat 1"]);
    expect(shop.asked.slice(-2)).toEqual([`info ${idOf(6)}`, `info ${idOf(5)}`]);
  });

  test("many that have to be looked up are read as a list", async () => {
    const shop = new Shop(many(40));
    const shelf = shelfOf(shop);
    await shelf.need(1);
    shop.asked.length = 0;
    for (let at = 20; at < 40; at++) shelf.follow(change("chat.restored", { id: idOf(at), revision: 2 }));
    await gathered();
    expect(shop.asked).toEqual(["page", "pinned"]);
  });

  test("one that was brought from elsewhere is not said to be used now", async () => {
    const shop = new Shop(many(2));
    const shelf = shelfOf(shop);
    await shelf.need(1);
    const imported = { id: idOf(7, 1_000), title: "Imported", touchedAt: 1 };
    shop.chats.push(chat(imported));
    shelf.follow(change("chat.created", { ...imported, at: 90_000_000 }));
    await gathered();
    expect(titles(shelf)).toEqual(["Chat 0", "Chat 1", "Imported"]);
  });

  test("chats of other scopes are none of its", async () => {
    const shop = new Shop([chat({ id: idOf(0), scope: "shop", title: "Of the shop" })]);
    const shelf = shelfOf(shop, "shop");
    await shelf.need(1);
    shelf.follow(change("chat.created", { id: idOf(1), scope: "wiki" }));
    shelf.follow(change("turn.committed", { id: idOf(2), scope: "wiki", turn: "turn_1" }));
    await gathered();
    expect(titles(shelf)).toEqual(["Of the shop"]);
    expect(shop.asked).toEqual(["page"]);
  });
});

describe("after a gap", () => {
  test("everything stays until it is read anew, and as much is read as was needed", async () => {
    const shop = new Shop(many(9));
    const shelf = shelfOf(shop);
    await shelf.need(5);
    const seen: number[] = [];
    shelf.rows.subscribe((rows) => seen.push(rows.length));
    shop.chats = many(9)
      .filter((_, at) => at !== 1)
      .map((each) => ({ ...each, title: `${each.title} again`, revision: 2 }));
    shelf.follow({ type: "gap", position: "2", at: 0 });
    await settled();
    expect(titles(shelf)).toEqual([
      "Chat 0 again",
      "Chat 2 again",
      "Chat 3 again",
      "Chat 4 again",
      "Chat 5 again",
      "Chat 6 again",
    ]);
    expect(Math.min(...seen)).toBeGreaterThanOrEqual(5);
  });

  test("a second gap while the first is read begins anew", async () => {
    const shop = new Shop(many(3));
    const shelf = shelfOf(shop);
    await shelf.need(3);
    shop.isHeld = true;
    shelf.follow({ type: "gap", position: "2", at: 0 });
    await settled();
    shop.chats = [chat({ id: idOf(8), title: "The only one left" })];
    shelf.follow({ type: "gap", position: "3", at: 0 });
    await shop.release();
    expect(titles(shelf)).toEqual(["The only one left"]);
  });
});
