/** Changes to the one chat that a share link shows. There is no stream for it, so this polls while the tab is visible.
 * */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type ChatInfo, type Client } from "turnledger";
import type { ConnectionState, ChangeListener } from "./change-feed";

/** Milliseconds between two polls: soon after a change, and after a while without one. */
const SHORT_PAUSE = 3_000;
const LONG_PAUSE = 15_000;

export class SharedChatFeed {
  readonly #client: Client;
  readonly #chat: string;
  readonly #onRefused: (problem: unknown) => void;
  readonly #listeners = new Set<ChangeListener>();
  readonly #connection = signal<ConnectionState>("connecting");
  readonly #ending = new AbortController();
  #known: string | null = null;
  #pause = SHORT_PAUSE;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #polls = 0;

  constructor(client: Client, chat: string, onRefused: (problem: unknown) => void) {
    this.#client = client;
    this.#chat = chat;
    this.#onRefused = onRefused;
    const { signal: ending } = this.#ending;
    document.addEventListener("visibilitychange", () => this.#schedule(0), { signal: ending });
    addEventListener("online", () => this.#schedule(0), { signal: ending });
    this.#schedule(0);
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

  #schedule(pause: number): void {
    clearTimeout(this.#timer);
    if (document.hidden || this.#ending.signal.aborted) return;
    this.#timer = setTimeout(() => void this.#poll(), pause);
  }

  async #poll(): Promise<void> {
    try {
      const { chat } = await this.#client.chats.open(this.#chat).read({ limit: 1, signal: this.#ending.signal });
      this.#connection.value = "live";
      this.#compare(chat);
    } catch (problem) {
      if (this.#ending.signal.aborted) return;
      const isGone = problem instanceof errors.ConversationUnavailable;
      if (isGone) this.#emitIfChanged("gone");
      else this.#onRefused(problem);
      this.#connection.value = isGone ? "live" : "lost";
    }
    this.#schedule(this.#pause);
  }

  #compare({ branch, touchedAt, turnCount, title, isRunning }: ChatInfo): void {
    const hasChanged = this.#emitIfChanged(JSON.stringify([branch, touchedAt, turnCount, title]));
    this.#pause = hasChanged || isRunning ? SHORT_PAUSE : Math.min(this.#pause * 1.5, LONG_PAUSE);
  }

  /** Emit a change if the chat differs from the last poll. Listeners read the whole chat again. */
  #emitIfChanged(known: string): boolean {
    const hasChanged = this.#known !== null && this.#known !== known;
    this.#known = known;
    const change = { type: "chat.changed", chat: this.#chat, position: `${++this.#polls}` } as Change;
    if (hasChanged) for (const listener of [...this.#listeners]) listener(change);
    return hasChanged;
  }
}
