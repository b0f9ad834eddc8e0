/** Key-value storage: the browser's own, or memory where the browser denies it. */

import type { OutboxStorage } from "turnledger/outbox";

export const STORAGE_PREFIX = "turnledger page:";

/** The part of `localStorage` that the page uses. */
export type KeyValueStorage = OutboxStorage;

/** Storage in memory, for frames and private windows without their own; lost with the page. */
export class MemoryStorage implements KeyValueStorage {
  readonly #values = new Map<string, string>();

  get length(): number {
    return this.#values.size;
  }

  key(index: number): string | null {
    return [...this.#values.keys()][index] ?? null;
  }

  getItem(name: string): string | null {
    return this.#values.get(name) ?? null;
  }

  setItem(name: string, value: string): void {
    this.#values.set(name, value);
  }

  removeItem(name: string): void {
    this.#values.delete(name);
  }
}

/** Wraps a storage until it is closed; later reads find nothing, and later writes fail. */
export class ClosableStorage implements KeyValueStorage {
  #storage: KeyValueStorage | null;

  constructor(storage: KeyValueStorage) {
    this.#storage = storage;
  }

  get isClosed(): boolean {
    return this.#storage === null;
  }

  get length(): number {
    return this.#storage?.length ?? 0;
  }

  key(index: number): string | null {
    return this.#storage?.key(index) ?? null;
  }

  getItem(name: string): string | null {
    return this.#storage?.getItem(name) ?? null;
  }

  /** Throws when closed, as a full storage does. */
  setItem(name: string, value: string): void {
    if (!this.#storage) throw new Error("This storage is closed.");
    this.#storage.setItem(name, value);
  }

  removeItem(name: string): void {
    this.#storage?.removeItem(name);
  }

  close(): void {
    this.#storage = null;
  }
}

/** Shared by the whole page. */
const inMemory = { browser: new MemoryStorage(), tab: new MemoryStorage() };

export function browserStorage(): KeyValueStorage {
  return usable(() => localStorage) ?? inMemory.browser;
}

export function tabStorage(): KeyValueStorage {
  return usable(() => sessionStorage) ?? inMemory.tab;
}

export function storedKeys(storage: KeyValueStorage): string[] {
  return Array.from({ length: storage.length }, (_, index) => storage.key(index) ?? "");
}

function usable(storage: () => KeyValueStorage): KeyValueStorage | null {
  try {
    const found = storage();
    const probe = `${STORAGE_PREFIX}probe`;
    found.setItem(probe, "1");
    found.removeItem(probe);
    return found;
  } catch {
    return null;
  }
}
