/** Changes to the one chat that a share link shows. There is no stream for it, so this polls while the tab is visible.
 * */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type ChatInfo, type Client } from "turnledger";
import type { ConnectionState, ChangeListener } from "./change-feed";

/** Milliseconds between two polls: soon after a change, and after a while without one. */
const SOON = 3_000;
const LATER = 15_000;

export class SharedChatFeed {
  readonly #client: Client;
  readonly #chat: string;
  readonly #refused: (problem: unknown) => void;
  readonly #listeners = new Set<ChangeListener>();
  readonly #connection = signal<ConnectionState>("connecting");
  readonly #ending = new AbortController();
  #known: string | null = null;
  #pause = SOON;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #looks = 0;

  constructor(client: Client, chat: string, refused: (problem: unknown) => void) {
    this.#client = client;
    this.#chat = chat;
    this.#refused = refused;
    const { signal: ending } = this.#ending;
    document.addEventListener("visibilitychange", () => this.#again(0), { signal: ending });
    addEventListener("online", () => this.#again(0), { signal: ending });
    this.#again(0);
  }

  get connection(): ReadonlySignal<ConnectionState> {
    return this.#connection;
  }

  listen(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Polling starts in the constructor: a reader has no list to read first. */
  start(): void {}

  close(): void {
    clearTimeout(this.#timer);
    this.#ending.abort();
    this.#listeners.clear();
  }

  #again(pause: number): void {
    clearTimeout(this.#timer);
    if (document.hidden || this.#ending.signal.aborted) return;
    this.#timer = setTimeout(() => void this.#look(), pause);
  }

  async #look(): Promise<void> {
    try {
      const { chat } = await this.#client.chats.open(this.#chat).read({ limit: 1, signal: this.#ending.signal });
      this.#connection.value = "live";
      this.#compare(chat);
    } catch (problem) {
      if (this.#ending.signal.aborted) return;
      const isGone = problem instanceof errors.ConversationUnavailable;
      if (isGone) this.#emitIfChanged("gone");
      else this.#refused(problem);
      this.#connection.value = isGone ? "live" : "lost";
    }
    this.#again(this.#pause);
  }

  #compare({ branch, touchedAt, turnCount, title, isRunning }: ChatInfo): void {
    const isNews = this.#emitIfChanged(JSON.stringify([branch, touchedAt, turnCount, title]));
    this.#pause = isNews || isRunning ? SOON : Math.min(this.#pause * 1.5, LATER);
  }

  /** Emit a change if the chat differs from the last poll. Listeners read the whole chat again. */
  #emitIfChanged(known: string): boolean {
    const isNews = this.#known !== null && this.#known !== known;
    this.#known = known;
    const change = { type: "chat.changed", chat: this.#chat, position: `${++this.#looks}` } as Change;
    if (isNews) for (const listener of [...this.#listeners]) listener(change);
    return isNews;
  }
}
