/** Of which application's chats the list is. */

import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { NewChat } from "turnledger";
import type { Realm } from "../session/storage-scope";

export class Scopes {
  readonly #realm: Realm;
  readonly #known: Signal<readonly string[]>;
  readonly #chosen: Signal<string | null>;
  /** The only one that this page shows, said by its address or by the credential; null: it may be chosen. */
  readonly fixed: string | null;

  constructor(realm: Realm, fixed: string | null) {
    this.#realm = realm;
    this.fixed = fixed;
    const remembered = fixed ?? realm.get("scope");
    this.#chosen = signal(remembered);
    this.#known = signal(remembered === null ? [] : [remembered]);
  }

  /** Those that chats were seen of, in order; the empty one is that of chats without. */
  get known(): ReadonlySignal<readonly string[]> {
    return this.#known;
  }

  /** Null: all. */
  get chosen(): ReadonlySignal<string | null> {
    return this.#chosen;
  }

  /** As what a new chat is made. */
  readonly newChat: ReadonlySignal<NewChat> = computed(() => (this.#chosen.value ? { scope: this.#chosen.value } : {}));

  choose(scope: string | null): void {
    if (this.fixed !== null) return;
    this.#chosen.value = scope;
    this.#realm.set("scope", scope);
  }

  /** Take note of those of some chats. */
  see(scopes: Iterable<string | null>): void {
    const known = this.known.peek();
    const all = new Set([...known, ...[...scopes].map((scope) => scope ?? "")]);
    if (all.size > known.length) this.#known.value = [...all].sort((one, other) => one.localeCompare(other));
  }
}

/** `?scope=NAME` of the address; null: it names none. */
export function scopeOfAddress(search = location.search): string | null {
  return new URLSearchParams(search).get("scope") || null;
}
