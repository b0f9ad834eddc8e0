import { describe, expect, it } from "vitest";
import type { Chat, Turn } from "turnledger";
import { waitFor } from "../../src/browser/wait-for";
import { continuation, History } from "../../src/thread/history";
import { MadeUpChat, turnOf, turnsOf } from "./fakes";

const numbers = (history: History): number[] => history.turns.value.map(({ number }) => number);

function historyOf(chat: MadeUpChat, isVisited = false): History {
  return new History(chat.read.bind(chat) as Chat["read"], new AbortController().signal, isVisited);
}

/** A chat of so many turns, and a history that has read its first page. */
async function opened(turns: number, isVisited = false): Promise<{ chat: MadeUpChat; history: History }> {
  const chat = new MadeUpChat();
  chat.turns = turnsOf(1, turns);
  const history = historyOf(chat, isVisited);
  await history.catchUp();
  return { chat, history };
}

describe("known turns and a page of the end", () => {
  it("are joined where they meet, and common turns stay the same objects", () => {
    const there = turnsOf(1, 4);
    const joined = continuation(there, turnsOf(4, 6));
    expect(joined?.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(joined?.[3]).toBe(there[3]);
  });

  it("are not joined over a gap or across branches", () => {
    expect(continuation(turnsOf(1, 4), turnsOf(6, 8))).toBeNull();
    expect(continuation(turnsOf(1, 4), [turnOf(4, { id: "turn_4b", parent: "turn_3b" })])).toBeNull();
  });

  it("end with the chat, after an undo and an edit", () => {
    expect(continuation(turnsOf(1, 4), turnsOf(1, 2))?.length).toBe(2);
    const edited = turnOf(3, { id: "turn_3b" });
    expect(continuation(turnsOf(1, 4), [edited])?.map(({ id }) => id)).toEqual(["turn_1", "turn_2", "turn_3b"]);
    expect(continuation(turnsOf(1, 4), [])).toEqual([]);
  });
});

describe("a history", () => {
  it("opens with its last page, however long it is", async () => {
    const { chat, history } = await opened(10_000);
    expect(numbers(history).at(-1)).toBe(10_000);
    expect(numbers(history).length).toBeLessThan(50);
    expect(chat.reads.length).toBe(1);
    expect(history.hasOlder.value).toBe(true);
  });

  it("reads older turns of its branch, one page at a time", async () => {
    const { chat, history } = await opened(100);
    await Promise.all([history.older(), history.older()]);
    expect(chat.reads.length).toBe(2);
    expect(chat.reads[1]).toMatchObject({ branch: "branch_1" });
    while (history.hasOlder.value) await history.older();
    expect(numbers(history)).toEqual(turnsOf(1, 100).map(({ number }) => number));
  });

  it("names no branch for readers by share link", async () => {
    const { chat, history } = await opened(100, true);
    await history.latest();
    await history.older();
    expect(chat.reads.at(-1)).not.toHaveProperty("branch");
  });

  it("reads a short page for new turns, and keeps the others", async () => {
    const { chat, history } = await opened(30);
    const [first] = numbers(history);
    chat.turns = turnsOf(1, 31);
    await history.catchUp();
    expect(numbers(history)[0]).toBe(first);
    expect(numbers(history).at(-1)).toBe(31);
    expect(chat.reads.length).toBe(2);
  });

  it("is read again for another branch, as far back as the user has scrolled", async () => {
    const { chat, history } = await opened(60);
    const other = (turn: Turn): Turn => ({ ...turn, id: `${turn.id}b`, parent: `${turn.parent}b` });
    chat.turns = turnsOf(1, 60).map((turn) => (turn.number < 20 ? turn : other(turn)));
    await history.catchUp(20);
    expect(numbers(history)[0]).toBeLessThanOrEqual(20);
    expect(history.turns.value.at(-1)?.id).toBe("turn_60b");
  });

  it("shows some turns of a page in each frame", async () => {
    const { chat, history } = await opened(100);
    const lengths: number[] = [];
    const stop = history.turns.subscribe(({ length }) => lengths.push(length));
    await history.older();
    stop();
    expect(lengths).toEqual([12, 22, 32, 42, 52]);
    expect(history.hasOlder.value).toBe(true);

    const visited = historyOf(chat, true);
    await visited.catchUp();
    lengths.length = 0;
    const leave = visited.turns.subscribe(({ length }) => lengths.push(length));
    await visited.newer();
    leave();
    expect(lengths).toEqual([12, 22, 32, 42, 52]);
  });

  it("drops the rest of an older page when another branch is shown", async () => {
    const { chat, history } = await opened(60);
    const reading = history.older();
    await waitFor(() => history.turns.value.length > 12);
    expect(history.turns.value.length).toBeLessThan(52);
    chat.turns = turnsOf(1, 2);
    await Promise.all([reading, history.catchUp()]);
    expect(numbers(history)).toEqual([1, 2]);
    expect(history.hasOlder.value).toBe(false);
  });

  it("drops an older page of a hidden branch", async () => {
    const { chat, history } = await opened(60);
    const reading = history.older();
    chat.turns = turnsOf(1, 2);
    await Promise.all([reading, history.catchUp()]);
    expect(numbers(history)).toEqual([1, 2]);
    expect(history.hasOlder.value).toBe(false);
  });

  it("returns the repeated read to callers during a read", async () => {
    const chat = new MadeUpChat();
    chat.turns = turnsOf(1, 1);
    const history = historyOf(chat);
    const first = history.catchUp();
    chat.turns = turnsOf(1, 2);
    await Promise.all([first, history.catchUp()]);
    expect(numbers(history)).toEqual([1, 2]);
  });

  it("of a visitor opens with its first page, and grows as far as they read", async () => {
    const { chat, history } = await opened(100, true);
    expect([numbers(history), history.hasNewer.value, history.hasOlder.value]).toEqual([
      Array.from({ length: 12 }, (_, at) => at + 1),
      true,
      false,
    ]);
    await Promise.all([history.newer(), history.newer()]);
    expect(numbers(history)).toEqual(Array.from({ length: 52 }, (_, at) => at + 1));
    // What is new belongs after turns that were not read.
    chat.turns.push(turnOf(101));
    await history.catchUp();
    expect([numbers(history).length, history.hasNewer.value]).toEqual([52, true]);
    await history.newer();
    await history.newer();
    expect([numbers(history).length, history.hasNewer.value]).toEqual([101, false]);
    chat.turns.push(turnOf(102));
    await history.catchUp();
    expect(numbers(history).length).toBe(102);
  });

  it("of a visitor shows the last page on request", async () => {
    const { history } = await opened(100, true);
    await history.latest();
    expect([numbers(history).at(0), numbers(history).at(-1)]).toEqual([89, 100]);
    expect([history.hasNewer.value, history.hasOlder.value]).toEqual([false, true]);
  });
});
