/** The scope that the list of chats is filtered by. */

import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { NewChat } from "turnledger";
import type { StorageScope } from "../session/storage-scope";

export class ScopeFilter {
  readonly #storage: StorageScope;
  readonly #known: Signal<readonly string[]>;
  readonly #chosen: Signal<string | null>;
  /** The only scope that this page shows, set by its address or the credential; null: the user may choose. */
  readonly fixed: string | null;

  constructor(storage: StorageScope, fixed: string | null) {
    this.#storage = storage;
    this.fixed = fixed;
    const remembered = fixed ?? storage.get("scope");
    this.#chosen = signal(remembered);
    this.#known = signal(remembered === null ? [] : [remembered]);
  }

  /** The known scopes, sorted; the empty one stands for chats without a scope. */
  get known(): ReadonlySignal<readonly string[]> {
    return this.#known;
  }

  /** Null: all. */
  get chosen(): ReadonlySignal<string | null> {
    return this.#chosen;
  }

  readonly newChat: ReadonlySignal<NewChat> = computed(() => (this.#chosen.value ? { scope: this.#chosen.value } : {}));

  choose(scope: string | null): void {
    if (this.fixed !== null) return;
    this.#chosen.value = scope;
    this.#storage.set("scope", scope);
  }

  addKnown(scopes: Iterable<string | null>): void {
    const known = this.known.peek();
    const all = new Set([...known, ...[...scopes].map((scope) => scope ?? "")]);
    if (all.size > known.length) this.#known.value = [...all].sort((one, other) => one.localeCompare(other));
  }
}

/** `?scope=NAME` of the address, or null. */
export function scopeFromAddress(search = location.search): string | null {
  return new URLSearchParams(search).get("scope") || null;
}
