/** Chats that are selected in the list, to archive or delete them at once. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { ChatRow } from "./chat-row";

export class ChatSelection {
  readonly #ids = signal<ReadonlySet<string> | null>(null);
  readonly #shown: ReadonlySignal<readonly ChatRow[]>;
  /** The chat that was selected last: a range begins there. */
  #last: string | null = null;

  /** `shown`: the rows of the list. A selected chat that leaves it is no longer selected. */
  constructor(shown: ReadonlySignal<readonly ChatRow[]>) {
    this.#shown = shown;
  }

  /** Whether chats are being selected. */
  readonly isOn: ReadonlySignal<boolean> = computed(() => this.#ids.value !== null);

  readonly rows: ReadonlySignal<readonly ChatRow[]> = computed(() => {
    const ids = this.#ids.value;
    return ids === null ? [] : this.#shown.value.filter(({ id }) => ids.has(id));
  });

  has(id: string): boolean {
    return this.#ids.value?.has(id) ?? false;
  }

  start(id?: string): void {
    this.#ids.value = new Set(id === undefined ? [] : [id]);
    this.#last = id ?? null;
  }

  /** Select a chat or not; with `isRange`, all between the last one and it, too. */
  set(id: string, isSelected: boolean, isRange = false): void {
    const ids = new Set(this.#ids.peek());
    const order = this.#shown.peek().map((row) => row.id);
    const [from, to] = [order.indexOf(isRange ? (this.#last ?? id) : id), order.indexOf(id)].sort((a, b) => a - b);
    const range = from! < 0 ? [id] : order.slice(from, to! + 1);
    for (const each of range) {
      if (isSelected) ids.add(each);
      else ids.delete(each);
    }
    this.#ids.value = ids;
    this.#last = id;
  }

  /** Select all rows, or, if all are selected, none. */
  setAll(isSelected: boolean): void {
    this.#ids.value = new Set(isSelected ? this.#shown.peek().map(({ id }) => id) : []);
  }

  stop(): void {
    this.#ids.value = null;
    this.#last = null;
  }
}
