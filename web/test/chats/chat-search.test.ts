import { signal } from "@preact/signals";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Change, Hit, Page } from "turnledger";
import { ChatSearch } from "../../src/chats/chat-search";
import { snippetParts } from "../../src/chats/snippet";
import type { Session } from "../../src/session/session";
import { chat, idOf, settled } from "./fakes";

interface Question {
  readonly query: string;
  readonly scope: string | undefined;
  answer(page: Page<Hit>): Promise<void>;
  fail(problem: unknown): Promise<void>;
}

const hit = (number: number): Hit => ({
  chat: chat({ id: idOf(number) }),
  turn: null,
  branch: "b",
  snippet: "",
  marks: [],
});

function searching() {
  const questions: Question[] = [];
  let tell: (change: Change) => void = () => {};
  async function* pages(query: string, options: { scope?: string }): AsyncGenerator<Page<Hit>, void, undefined> {
    for (;;) {
      yield await new Promise<Page<Hit>>((resolve, reject) => {
        const answer = (page: Page<Hit>) => (resolve(page), settled());
        questions.push({ query, scope: options.scope, answer, fail: (problem) => (reject(problem), settled()) });
      });
    }
  }
  const session = {
    client: { chats: { search: (query: string, options: object) => ({ pages: () => pages(query, options) }) } },
    chats: { scopes: { chosen: signal("shop") } },
    feed: { listen: (listener: typeof tell) => ((tell = listener), () => {}) },
  };
  return { search: new ChatSearch(session as unknown as Session), questions, tell: (change: Change) => tell(change) };
}

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

async function typed(search: ChatSearch, text: string): Promise<void> {
  for (let end = 1; end <= text.length; end++) search.type(text.slice(0, end));
  vi.advanceTimersByTime(500);
  await settled();
}

test("a search runs once after typing, in the selected scope", async () => {
  const { search, questions } = searching();
  await typed(search, "heron");
  expect(questions.map(({ query, scope }) => [query, scope])).toEqual([["heron", "shop"]]);
  await questions[0]!.answer({ data: [hit(1)], next: null, complete: false });
  expect(search.found.value).toMatchObject({ query: "heron", isWhole: true, isComplete: false });
  search.type("  ");
  expect([search.isOn.value, search.found.value]).toEqual([false, null]);
});

test("a late result replaces nothing", async () => {
  const { search, questions } = searching();
  await typed(search, "her");
  await typed(search, "heron");
  await questions[1]!.answer({ data: [hit(2)], next: null, complete: true });
  await questions[0]!.answer({ data: [hit(1)], next: null, complete: true });
  expect(search.found.value).toMatchObject({ query: "heron", hits: [hit(2)] });
  await typed(search, "x");
  search.type("");
  await questions[2]!.fail(new Error("Too late."));
  expect([search.found.value, search.problem.value, search.isSearching.value]).toEqual([null, null, false]);
});

test("results stay until the next ones arrive, and grow by pages without repeating a chat", async () => {
  const { search, questions, tell } = searching();
  await typed(search, "heron");
  await questions[0]!.answer({ data: [hit(1), hit(2)], next: "more", complete: true });
  void search.more();
  void search.more();
  await settled();
  expect(questions).toHaveLength(2);
  await questions[1]!.answer({ data: [hit(2), hit(3)], next: null });
  expect(search.found.value?.hits).toEqual([hit(1), hit(2), hit(3)]);
  tell({ type: "chat.deleted", chat: idOf(2), scope: null, reason: "deleted", position: "1", at: 0 });
  expect(search.found.value?.hits).toEqual([hit(1), hit(3)]);
  search.type("herons");
  expect(search.found.value?.hits).toHaveLength(2);
});

test("marks count characters, and the parts cover the whole snippet", () => {
  expect(snippetParts("A 🦩 flamingo", [[4, 12]])).toEqual([
    { text: "A 🦩 ", isMarked: false },
    { text: "flamingo", isMarked: true },
  ]);
  const odd = snippetParts("abcdef", [
    [4, 9],
    [0, 2],
    [1, 3],
  ]);
  expect(odd.map(({ text }) => text).join("")).toBe("abcdef");
  expect(odd.filter(({ isMarked }) => isMarked).map(({ text }) => text)).toEqual(["ab", "c", "ef"]);
});
