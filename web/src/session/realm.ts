/** One credential's corner of the browser's storage: what is in it goes with the credential. */

import type { OutboxStorage } from "turnledger/outbox";

/** The beginning of the name of everything that this page ever writes down. */
export const PREFIX = "turnledger page:";

/** What `localStorage` is of a storage. */
export type KeptStorage = OutboxStorage;

/** A frame may be denied its storage, and a private window its room: then all is forgotten with the page. */
export class Memory implements KeptStorage {
  readonly #values = new Map<string, string>();

  get length(): number {
    return this.#values.size;
  }

  key(place: number): string | null {
    return [...this.#values.keys()][place] ?? null;
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

/** The storage of this browser, or one that lasts as long as the page. */
export function storageHere(): KeptStorage {
  try {
    const probe = `${PREFIX}probe`;
    localStorage.setItem(probe, "1");
    localStorage.removeItem(probe);
    return localStorage;
  } catch {
    return new Memory();
  }
}

export class Realm {
  readonly name: string;
  readonly storage: KeptStorage;
  readonly #prefix: string;

  /** `name`: `own`, or the name of a link. */
  constructor(name: string, storage: KeptStorage = storageHere()) {
    this.name = name;
    this.storage = storage;
    this.#prefix = `${PREFIX}${name}:`;
  }

  get(name: string): string | null {
    return this.storage.getItem(this.#prefix + name);
  }

  /** Keep a value; null forgets it. Returns whether it is kept: a full storage keeps nothing more. */
  set(name: string, value: string | null): boolean {
    try {
      if (value === null) this.storage.removeItem(this.#prefix + name);
      else this.storage.setItem(this.#prefix + name, value);
      return true;
    } catch {
      return false;
    }
  }

  /** The names that are there, of those that begin so. */
  names(beginning = ""): string[] {
    const all = Array.from({ length: this.storage.length }, (_, place) => this.storage.key(place) ?? "");
    const wanted = this.#prefix + beginning;
    return all.filter((each) => each.startsWith(wanted)).map((each) => each.slice(this.#prefix.length));
  }

  /** Whose messages the outbox of this realm holds. */
  get sender(): string {
    return `page ${this.name}`;
  }

  /** Forget everything, unsent messages included. */
  wipe(): void {
    const outbox = `turnledger:${encodeURIComponent(this.sender)}:`;
    const all = Array.from({ length: this.storage.length }, (_, place) => this.storage.key(place) ?? "");
    for (const each of all) {
      if (each.startsWith(this.#prefix) || each.startsWith(outbox)) this.storage.removeItem(each);
    }
  }
}
