/** Search chats while the user types. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { Hit, Page } from "turnledger";
import type { Session } from "../session/session";

/** Milliseconds without a keystroke before the search runs. */
const PAUSE = 180;

interface SearchResults {
  readonly query: string;
  readonly hits: readonly Hit[];
  readonly isWhole: boolean;
  /** Whether everything committed is searchable yet. */
  readonly isComplete: boolean;
}

export class ChatSearch {
  readonly #session: Session;
  readonly #typed = signal("");
  readonly #found = signal<SearchResults | null>(null);
  readonly #problem = signal<unknown>(null);
  readonly #isSearching = signal(false);
  readonly #unlisten: () => void;
  #request = new AbortController();
  #pages: AsyncGenerator<Page<Hit>, void, undefined> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(session: Session) {
    this.#session = session;
    this.#unlisten = session.feed.listen((change) => {
      if (change.type === "chat.deleted") this.drop(change.chat);
    });
  }

  get typed(): ReadonlySignal<string> {
    return this.#typed;
  }
  /** Whether hits are shown instead of the list. */
  readonly isOn: ReadonlySignal<boolean> = computed(() => this.#typed.value.trim() !== "");
  /** Null before the first search. Results of the previous query stay until new ones arrive. */
  get found(): ReadonlySignal<SearchResults | null> {
    return this.#found;
  }
  get isSearching(): ReadonlySignal<boolean> {
    return this.#isSearching;
  }
  get problem(): ReadonlySignal<unknown> {
    return this.#problem;
  }

  type(text: string): void {
    this.#typed.value = text;
    this.#stop();
    if (text.trim() === "") this.#found.value = this.#problem.value = null;
    else {
      this.#isSearching.value = true;
      this.#timer = setTimeout(() => void this.submit(), PAUSE);
    }
  }

  async submit(): Promise<void> {
    this.#stop();
    const query = this.#typed.peek().trim();
    if (query === "") return;
    const scope = this.#session.chats.scopes.chosen.peek();
    const { signal } = this.#request;
    this.#pages = this.#session.client.chats.search(query, { ...(scope !== null && { scope }), signal }).pages();
    await this.#read(query, []);
  }

  async more(): Promise<void> {
    const found = this.#found.peek();
    if (found && !found.isWhole && !this.#isSearching.peek()) await this.#read(found.query, found.hits);
  }

  /** Remove a deleted chat from the results. */
  drop(chat: string): void {
    const found = this.#found.peek();
    if (found?.hits.some((hit) => hit.chat.id === chat)) {
      this.#found.value = { ...found, hits: found.hits.filter((hit) => hit.chat.id !== chat) };
    }
  }

  close(): void {
    this.#unlisten();
    this.#stop();
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#request.abort();
    this.#request = new AbortController();
    this.#pages = null;
    this.#isSearching.value = false;
  }

  async #read(query: string, before: readonly Hit[]): Promise<void> {
    const { signal } = this.#request;
    const pages = this.#pages;
    if (pages === null) return;
    this.#isSearching.value = true;
    try {
      const next = await pages.next();
      if (signal.aborted) return;
      const page: Page<Hit> = next.done ? { data: [], next: null } : next.value;
      // A later page may hit the same chat again, in an older message.
      const known = new Set(before.map((hit) => hit.chat.id));
      const hits = [...before, ...page.data.filter((hit) => !known.has(hit.chat.id))];
      const isComplete = page.complete ?? this.#found.peek()?.isComplete ?? true;
      this.#found.value = { query, hits, isWhole: page.next === null, isComplete };
      this.#problem.value = null;
    } catch (problem) {
      if (signal.aborted) return;
      this.#problem.value = problem;
    }
    this.#isSearching.value = false;
  }
}
