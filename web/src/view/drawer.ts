/** Where the list of chats is: beside the chat, over it, or hidden. */

import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { StorageScope } from "../session/storage-scope";
import { isNarrow } from "../browser/viewport";

/** Where the focus goes: the first chat, the search, or the button that opens the list. */
type FocusPlace = "chats" | "search" | "button";

export class Drawer {
  readonly #storage: StorageScope;
  readonly #isOpen = signal(false);
  readonly #isBeside: Signal<boolean>;
  /** Whether there is no room for it beside the chat. */
  readonly isNarrow: ReadonlySignal<boolean>;
  readonly isOver: ReadonlySignal<boolean>;
  readonly isShown: ReadonlySignal<boolean>;
  #next: FocusPlace | null = null;

  constructor(storage: StorageScope, isEmbedded: boolean) {
    this.#storage = storage;
    this.#isBeside = signal(storage.get("sidebar") !== "hidden");
    this.isNarrow = computed(() => isEmbedded || isNarrow.value);
    this.isOver = computed(() => this.isNarrow.value && this.#isOpen.value);
    this.isShown = computed(() => (this.isNarrow.value ? this.#isOpen.value : this.#isBeside.value));
  }

  /** Show it, and move the focus there. */
  open(to: FocusPlace = "chats"): void {
    this.#next = to;
    if (this.isNarrow.value) this.#isOpen.value = true;
    else this.#beside(true);
  }

  /** Hide it, and focus the button that opens it. */
  close(): void {
    this.#next = "button";
    if (this.isNarrow.value) this.#isOpen.value = false;
    else this.#beside(false);
  }

  /** Whether the focus goes here after rendering; true once each time. */
  takesFocus(where: FocusPlace): boolean {
    if (this.#next !== where) return false;
    this.#next = null;
    return true;
  }

  /** Hide it if it covers the chat: the user has moved on. */
  leave(): void {
    this.#isOpen.value = false;
  }

  #beside(isIt: boolean): void {
    this.#isBeside.value = isIt;
    this.#storage.set("sidebar", isIt ? null : "hidden");
  }
}
