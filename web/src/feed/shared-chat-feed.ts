/** Changes to the one chat that a share link shows: from a stream while the tab is visible. Where the server has no
 * room for another stream, this polls. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type ChatInfo, type Client } from "turnledger";
import { LOSS_DELAY, pause, type ConnectionState, type ChangeListener } from "./change-feed";

/** Milliseconds between two polls, and before the stream is requested again. */
const POLL_PAUSE = 15_000;

export class SharedChatFeed {
  readonly #client: Client;
  readonly #chat: string;
  readonly #onRefused: (problem: unknown) => void;
  readonly #listeners = new Set<ChangeListener>();
  readonly #connection = signal<ConnectionState>("connecting");
  readonly #ending = new AbortController();
  #reading: AbortController | null = null;
  #lossTimer: ReturnType<typeof setTimeout> | undefined;
  /** Where to read on. */
  #position: string | undefined;
  /** The chat as of the last poll. */
  #known: string | null = null;

  constructor(client: Client, chat: string, onRefused: (problem: unknown) => void) {
    this.#client = client;
    this.#chat = chat;
    this.#onRefused = onRefused;
    const { signal: ending } = this.#ending;
    document.addEventListener("visibilitychange", () => this.#update(), { signal: ending });
    addEventListener("online", () => (this.#stop(), this.#update()), { signal: ending });
    this.#update();
  }

  get connection(): ReadonlySignal<ConnectionState> {
    return this.#connection;
  }

  listen(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The client reports whether its requests reach the server. An outage shorter than a moment is not shown. */
  noteConnection(isLost: boolean): void {
    clearTimeout(this.#lossTimer);
    if (!isLost) this.#connection.value = "live";
    else this.#lossTimer = setTimeout(() => (this.#connection.value = "lost"), LOSS_DELAY);
  }

  /** Reading starts in the constructor: a visitor has no list to read first. */
  start(): void {}

  close(): void {
    this.#ending.abort();
    clearTimeout(this.#lossTimer);
    this.#stop();
    this.#listeners.clear();
  }

  /** Read while the tab is visible: a hidden one holds none of the few connections of the browser. */
  #update(): void {
    if (document.hidden) this.#stop();
    else if (this.#reading === null && !this.#ending.signal.aborted) {
      this.#reading = new AbortController();
      void this.#read(this.#reading.signal);
    }
  }

  #stop(): void {
    this.#reading?.abort();
    this.#reading = null;
  }

  async #read(ending: AbortSignal): Promise<void> {
    while (!ending.aborted) {
      try {
        await this.#follow(ending);
      } catch (problem) {
        if (ending.aborted) return;
        if (problem instanceof errors.NotAdmitted) return this.#refuse(problem);
        if (!(await this.#poll(ending))) return;
      }
      await pause(POLL_PAUSE, ending);
    }
  }

  async #follow(ending: AbortSignal): Promise<void> {
    const after = this.#position === undefined ? {} : { after: this.#position };
    for await (const { type, position } of this.#client.events({ ...after, signal: ending })) {
      if (ending.aborted) return;
      this.#position = position;
      this.#connection.value = "live";
      // Also for the `start` of the stream: the chat may have changed since it was read.
      this.#emit(type === "turn.flagged" ? type : "chat.changed");
    }
  }

  /** Emit a change if the chat differs from the last poll; return whether to continue. */
  async #poll(ending: AbortSignal): Promise<boolean> {
    try {
      const { chat } = await this.#client.chats.open(this.#chat).read({ limit: 1, signal: ending });
      this.#connection.value = "live";
      this.#compare(summaryOf(chat));
    } catch (problem) {
      if (ending.aborted) return false;
      if (problem instanceof errors.NotAdmitted) return this.#refuse(problem), false;
      if (problem instanceof errors.ConversationUnavailable) this.#compare("gone");
      else this.#connection.value = "lost";
    }
    return true;
  }

  #compare(known: string): void {
    const hasChanged = this.#known !== null && this.#known !== known;
    this.#known = known;
    if (hasChanged) this.#emit();
  }

  #refuse(problem: unknown): void {
    this.#connection.value = "lost";
    this.#onRefused(problem);
  }

  /** Listeners read the whole chat again. */
  #emit(type: "chat.changed" | "turn.flagged" = "chat.changed"): void {
    const change = { type, chat: this.#chat, position: this.#position ?? "" } as Change;
    for (const listener of [...this.#listeners]) listener(change);
  }
}

function summaryOf({ branch, touchedAt, turnCount, title }: ChatInfo): string {
  return JSON.stringify([branch, touchedAt, turnCount, title]);
}
