/** The tags of one chat, the same in all tabs. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";
import type { ChatRow } from "./chat-row";
import { updateChat } from "./revision-conflicts";

export class ChatTags {
  readonly #session: Pick<Session, "client" | "chats" | "feed">;
  readonly #chat: string;
  readonly #tags: ReturnType<typeof signal<readonly string[]>>;
  readonly #problem = signal<string | null>(null);
  readonly #unlisten: () => void;
  #revision: number;

  constructor(session: Pick<Session, "client" | "chats" | "feed">, row: Pick<ChatRow, "id" | "tags" | "revision">) {
    this.#session = session;
    this.#chat = row.id;
    this.#tags = signal(row.tags);
    this.#revision = row.revision;
    this.#unlisten = session.feed.listen((change) => {
      if (change.type === "chat.changed" && change.chat === this.#chat) this.#take(change);
    });
  }

  get tags(): ReadonlySignal<readonly string[]> {
    return this.#tags as ReadonlySignal<readonly string[]>;
  }

  /** Why the last change failed; null if it did not. */
  get problem(): ReadonlySignal<string | null> {
    return this.#problem;
  }

  /** Returns whether it has the tag now. */
  add(tag: string): Promise<boolean> {
    return this.#change((tags) => [...tags.filter((each) => each !== tag), tag]);
  }

  /** Returns whether it no longer has the tag. */
  remove(tag: string): Promise<boolean> {
    return this.#change((tags) => tags.filter((each) => each !== tag));
  }

  close(): void {
    this.#unlisten();
  }

  async #change(change: (tags: readonly string[]) => readonly string[]): Promise<boolean> {
    const { client, chats } = this.#session;
    const known = { tags: this.tags.peek(), revision: this.#revision };
    try {
      const changed = await updateChat<"tags">(client.chats.open(this.#chat), known, ({ tags }) => ({
        tags: change(tags),
      }));
      chats.put(changed);
      this.#take(changed);
      this.#problem.value = null;
      return true;
    } catch (problem) {
      this.#problem.value = errorText(problem);
      return false;
    }
  }

  /** Changes may arrive late. */
  #take({ tags, revision }: Pick<ChatRow, "tags" | "revision">): void {
    if (revision < this.#revision) return;
    this.#revision = revision;
    this.#tags.value = tags;
  }
}
