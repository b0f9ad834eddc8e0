/** The chats, the last used first, as they are by now. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { Change, ChatInfo, Page } from "turnledger";
import type { Session } from "../session/session";

export class ChatList {
  readonly #session: Session;
  readonly #rows = signal<ReadonlyMap<string, ChatInfo>>(new Map());
  readonly #isWhole = signal(false);
  readonly #isLoading = signal(false);
  #pages: AsyncGenerator<Page<ChatInfo>, void, undefined> | null = null;

  constructor(session: Session) {
    this.#session = session;
    session.live.listen((change) => this.#follow(change));
  }

  /** Those that are known, pinned ones first, then the last used first. */
  readonly rows: ReadonlySignal<readonly ChatInfo[]> = computed(() =>
    [...this.#rows.value.values()].sort(
      (one, other) => Number(other.pinned) - Number(one.pinned) || other.touchedAt - one.touchedAt,
    ),
  );

  /** Whether there are no more of them. */
  get isWhole(): ReadonlySignal<boolean> {
    return this.#isWhole;
  }

  get isLoading(): ReadonlySignal<boolean> {
    return this.#isLoading;
  }

  /** Read the next page; the first one at first. */
  async more(): Promise<void> {
    if (this.#isLoading.value || this.#isWhole.value) return;
    this.#isLoading.value = true;
    try {
      this.#pages ??= this.#session.client.chats.list().pages();
      const next = await this.#pages.next();
      if (next.done) this.#isWhole.value = true;
      else {
        this.put(...next.value.data);
        this.#isWhole.value = next.value.next === null;
      }
    } catch (problem) {
      this.#pages = null;
      this.#session.notices.problem(problem);
    } finally {
      this.#isLoading.value = false;
    }
  }

  /** Take in how chats are by now. */
  put(...chats: readonly ChatInfo[]): void {
    const rows = new Map(this.#rows.value);
    for (const chat of chats) rows.set(chat.id, { ...rows.get(chat.id), ...chat });
    this.#rows.value = rows;
  }

  #drop(id: string): void {
    const rows = new Map(this.#rows.value);
    rows.delete(id);
    this.#rows.value = rows;
  }

  #follow(change: Change): void {
    switch (change.type) {
      case "gap":
        this.#pages = null;
        this.#isWhole.value = false;
        this.#rows.value = new Map();
        void this.more();
        break;
      case "chat.deleted":
        this.#drop(change.chat);
        break;
      case "chat.created":
      case "chat.changed":
      case "chat.restored":
      case "chat.switched":
      case "turn.committed":
        void this.#look(change.chat);
        break;
      default:
        break;
    }
  }

  async #look(id: string): Promise<void> {
    try {
      this.put(await this.#session.client.chats.open(id).info());
    } catch {
      this.#drop(id); // it has gone meanwhile; or nobody is there, and the stream will tell of a gap
    }
  }
}
