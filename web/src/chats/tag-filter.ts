/** The tag that the list of chats is filtered by, and the known tags of all chats. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { Client } from "turnledger";

export class TagFilter {
  readonly #client: Client;
  readonly #chosen = signal<string | null>(null);
  /** The tags of each chat that has any. */
  readonly #byChat = new Map<string, readonly string[]>();
  readonly #version = signal(0);
  #reading: Promise<void> | null = null;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Null: chats with any tags or none. */
  get chosen(): ReadonlySignal<string | null> {
    return this.#chosen;
  }

  /** The tags of the chats that were read so far, sorted. */
  readonly known: ReadonlySignal<readonly string[]> = computed(() => {
    void this.#version.value;
    return [...new Set([...this.#byChat.values()].flat())].sort((one, other) => one.localeCompare(other));
  });

  choose(tag: string | null): void {
    this.#chosen.value = tag;
  }

  note(chats: Iterable<{ readonly id: string; readonly tags: readonly string[] }>): void {
    let hasChanged = false;
    for (const { id, tags } of chats) {
      if ((this.#byChat.get(id) ?? []).join("\n") === tags.join("\n")) continue;
      hasChanged = true;
      if (tags.length === 0) this.#byChat.delete(id);
      else this.#byChat.set(id, tags);
    }
    if (hasChanged) this.#version.value += 1;
  }

  /** Read the tags of all chats, once: the list reads only as many chats as it shows. */
  readAll(scope: string | null, signal: AbortSignal): Promise<void> {
    const read = async (): Promise<void> => {
      const pages = this.#client.chats.list({ archived: null, ...(scope !== null && { scope }), signal }).pages();
      for await (const { data } of pages) this.note(data);
    };
    return (this.#reading ??= read().catch(() => {
      this.#reading = null; // the next time, again
    }));
  }
}
