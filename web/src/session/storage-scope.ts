/** The part of the storage that belongs to one credential, and is removed with it. */

import { ClosableStorage, storedKeys, STORAGE_PREFIX, browserStorage, type KeyValueStorage } from "../browser/storage";

export class StorageScope {
  readonly name: string;
  /** For code that names its own entries: see `sender`. */
  readonly backend: KeyValueStorage;
  readonly #prefix: string;
  readonly #closable: ClosableStorage;
  readonly #ending = new AbortController();

  /** `name`: of the slot and the credential in it. */
  constructor(name: string, storage: KeyValueStorage = browserStorage()) {
    this.name = name;
    this.backend = this.#closable = new ClosableStorage(storage);
    this.#prefix = `${STORAGE_PREFIX}${name}:`;
  }

  get(name: string): string | null {
    return this.backend.getItem(this.#prefix + name);
  }

  /** Store a value; null removes it. Returns whether it worked: the storage may be full. */
  set(name: string, value: string | null): boolean {
    try {
      if (value === null) this.backend.removeItem(this.#prefix + name);
      else this.backend.setItem(this.#prefix + name, value);
      return true;
    } catch {
      return false;
    }
  }

  names(beginning = ""): string[] {
    const prefix = this.#prefix + beginning;
    const found = storedKeys(this.backend).filter((each) => each.startsWith(prefix));
    return found.map((each) => each.slice(this.#prefix.length));
  }

  /** Call a function when another tab has changed a value, until this scope or the returned function ends it. */
  watch(name: string, onChange: () => void): () => void {
    const changed = ({ key }: StorageEvent): void => {
      if (key === null || key === this.#prefix + name) onChange();
    };
    addEventListener("storage", changed, { signal: this.#ending.signal });
    return () => removeEventListener("storage", changed);
  }

  /** The sender of the messages in the outbox of this scope. */
  get sender(): string {
    return senderOf(this.name);
  }

  /** Ignore later writes: another credential may be in this slot. */
  close(): void {
    this.#closable.close();
    this.#ending.abort();
  }

  get isClosed(): boolean {
    return this.#closable.isClosed;
  }
}

/** The scope of a credential in a slot. Each credential has its own, so nothing finds what a late tab writes for a
 * former one. */
export function storageScopeName(slot: string, fingerprint: string): string {
  return `${slot}.${fingerprint}`;
}

/** Whether this key was written for a slot, by any of its credentials. */
export function belongsToSlot(name: string, slot: string): boolean {
  return [`${STORAGE_PREFIX}${slot}:`, `${STORAGE_PREFIX}${slot}.`, outboxOf(slot, "."), outboxOf(slot)].some(
    (each) => name.startsWith(each),
  );
}

/** Whether this key belongs to the scope of this name. */
export function belongsToScope(name: string, scope: string): boolean {
  return name.startsWith(`${STORAGE_PREFIX}${scope}:`) || name.startsWith(outboxOf(scope));
}

function senderOf(scope: string): string {
  return `page ${scope}`;
}

function outboxOf(scope: string, end = ":"): string {
  return `turnledger:${encodeURIComponent(senderOf(scope))}${end}`;
}
