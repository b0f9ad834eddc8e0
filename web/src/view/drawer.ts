/** Where the list of chats is: beside the chat, over it, or hidden. */

import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { StorageScope } from "../session/storage-scope";
import { isNarrow } from "./viewport";

/** Where the focus goes: to the first of the list, to its search, or to the button that opens it. */
type FocusPlace = "chats" | "search" | "button";

export class Drawer {
  readonly #storage: StorageScope;
  readonly #isOpen = signal(false);
  readonly #isBeside: Signal<boolean>;
  /** Whether there is no room for it beside the chat. */
  readonly isNarrow: ReadonlySignal<boolean>;
  /** Whether it is over the chat, which waits behind it. */
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

  /** Show it, and go there. */
  open(to: FocusPlace = "chats"): void {
    this.#next = to;
    if (this.isNarrow.value) this.#isOpen.value = true;
    else this.#beside(true);
  }

  /** Put it away, and go back to the button that opens it. */
  close(): void {
    this.#next = "button";
    if (this.isNarrow.value) this.#isOpen.value = false;
    else this.#beside(false);
  }

  /** Whether the focus goes here now that it is drawn; once each time. */
  takesFocus(where: FocusPlace): boolean {
    if (this.#next !== where) return false;
    this.#next = null;
    return true;
  }

  /** Put it away if it is over the chat: somebody went on. */
  leave(): void {
    this.#isOpen.value = false;
  }

  #beside(isIt: boolean): void {
    this.#isBeside.value = isIt;
    this.#storage.set("sidebar", isIt ? null : "hidden");
  }
}
