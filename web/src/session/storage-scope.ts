/** One credential's corner of the storage: what is in it goes with the credential. */

import { ClosableStorage, namesIn, PREFIX, storageHere, type KeptStorage } from "../browser/storage";

export { Memory, PREFIX, storageHere, type KeptStorage } from "../browser/storage";

export class Realm {
  readonly name: string;
  /** For what names its entries by itself: see `sender`. */
  readonly storage: KeptStorage;
  readonly #prefix: string;
  readonly #closable: ClosableStorage;

  /** `name`: of the place and of the credential that was brought there. */
  constructor(name: string, storage: KeptStorage = storageHere()) {
    this.name = name;
    this.storage = this.#closable = new ClosableStorage(storage);
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
    const wanted = this.#prefix + beginning;
    const found = namesIn(this.storage).filter((each) => each.startsWith(wanted));
    return found.map((each) => each.slice(this.#prefix.length));
  }

  /** Whose messages the outbox of this realm holds. */
  get sender(): string {
    return senderOf(this.name);
  }

  /** Forget everything, unsent messages included. */
  wipe(): void {
    for (const each of namesIn(this.storage)) {
      if (each.startsWith(this.#prefix) || each.startsWith(outboxOf(this.name))) this.storage.removeItem(each);
    }
  }

  /** Whoever still has it writes nothing any more: another credential may be at its place by now. */
  close(): void {
    this.#closable.close();
  }

  get isClosed(): boolean {
    return this.#closable.isClosed;
  }
}

/** The realm of a credential at a place. Each has a name of its own: what a tab writes down before it has heard that
 * another credential is there is found by nobody. */
export function realmName(place: string, mark: string): string {
  return `${place}.${mark}`;
}

/** Whether this is the name of something that was written down at a place: in a realm, or for all of them. */
export function isOfPlace(name: string, place: string): boolean {
  return [`${PREFIX}${place}:`, `${PREFIX}${place}.`, outboxOf(place, "."), outboxOf(place)].some((each) =>
    name.startsWith(each),
  );
}

/** Whether this is the name of something in the realm of this name. */
export function isOfRealm(name: string, realm: string): boolean {
  return name.startsWith(`${PREFIX}${realm}:`) || name.startsWith(outboxOf(realm));
}

function senderOf(realm: string): string {
  return `page ${realm}`;
}

/** How the names of unsent messages begin. */
function outboxOf(realm: string, end = ":"): string {
  return `turnledger:${encodeURIComponent(senderOf(realm))}${end}`;
}
