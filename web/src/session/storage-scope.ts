/** The part of the storage that belongs to one credential, and is removed with it. */

import { ClosableStorage, storedKeys, STORAGE_PREFIX, browserStorage, type KeyValueStorage } from "../browser/storage";

export class StorageScope {
  readonly name: string;
  /** For what names its entries by itself: see `sender`. */
  readonly backend: KeyValueStorage;
  readonly #prefix: string;
  readonly #closable: ClosableStorage;

  /** `name`: of the place and of the credential that was brought there. */
  constructor(name: string, storage: KeyValueStorage = browserStorage()) {
    this.name = name;
    this.backend = this.#closable = new ClosableStorage(storage);
    this.#prefix = `${STORAGE_PREFIX}${name}:`;
  }

  get(name: string): string | null {
    return this.backend.getItem(this.#prefix + name);
  }

  /** Keep a value; null forgets it. Returns whether it is kept: a full storage keeps nothing more. */
  set(name: string, value: string | null): boolean {
    try {
      if (value === null) this.backend.removeItem(this.#prefix + name);
      else this.backend.setItem(this.#prefix + name, value);
      return true;
    } catch {
      return false;
    }
  }

  /** The names that are there, of those that begin so. */
  names(beginning = ""): string[] {
    const wanted = this.#prefix + beginning;
    const found = storedKeys(this.backend).filter((each) => each.startsWith(wanted));
    return found.map((each) => each.slice(this.#prefix.length));
  }

  /** Whose messages the outbox of this scope holds. */
  get sender(): string {
    return senderOf(this.name);
  }

  /** Whoever still has it writes nothing any more: another credential may be at its place by now. */
  close(): void {
    this.#closable.close();
  }

  get isClosed(): boolean {
    return this.#closable.isClosed;
  }
}

/** The scope of a credential at a place. Each has a name of its own: what a tab writes down before it has heard that
 * another credential is there is found by nobody. */
export function storageScopeName(place: string, mark: string): string {
  return `${place}.${mark}`;
}

/** Whether this is the name of something that was written down at a place: in a scope, or for all of them. */
export function belongsToSlot(name: string, place: string): boolean {
  return [`${STORAGE_PREFIX}${place}:`, `${STORAGE_PREFIX}${place}.`, outboxOf(place, "."), outboxOf(place)].some(
    (each) => name.startsWith(each),
  );
}

/** Whether this is the name of something in the scope of this name. */
export function belongsToScope(name: string, scope: string): boolean {
  return name.startsWith(`${STORAGE_PREFIX}${scope}:`) || name.startsWith(outboxOf(scope));
}

function senderOf(scope: string): string {
  return `page ${scope}`;
}

/** How the names of unsent messages begin. */
function outboxOf(scope: string, end = ":"): string {
  return `turnledger:${encodeURIComponent(senderOf(scope))}${end}`;
}
