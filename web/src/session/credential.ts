/** The token of a slot, shared by all tabs of this browser. Replacing it removes everything that belonged to the former
 * one. */

import { openChannel } from "../browser/broadcast-channel";
import { belongsToSlot, belongsToScope, StorageScope, storageScopeName } from "./storage-scope";
import { fingerprintOf } from "./token-format";
import { storedKeys, STORAGE_PREFIX, browserStorage, tabStorage, type KeyValueStorage } from "../browser/storage";

/** The slot of a user's own token. */
export const OWN_SLOT = "own";
/** The fingerprint without a token. */
const NOBODY = "nobody";
/** Milliseconds that a tab waits for the storage to show a token that another tab has announced. */
const BELIEVED = 2_000;

/** Messages between tabs: never the token itself. */
interface CredentialMessage {
  readonly mark: string;
}

export class Credential {
  /** `own`, or the name of a link. */
  readonly slot: string;
  readonly #storage: KeyValueStorage;
  readonly #channel: BroadcastChannel | null;
  readonly #ending = new AbortController();
  readonly #changed: () => void;
  #fingerprint: string;
  #unkept: string | null = null;
  #lookTimer: ReturnType<typeof setTimeout> | undefined;

  /** `changed`: called when another tab has replaced or removed the token; everything of the former one is removed by
   * then. */
  constructor(place: string, changed: () => void, storage: KeyValueStorage = browserStorage()) {
    this.slot = place;
    this.#changed = changed;
    this.#storage = storage;
    this.#fingerprint = this.#storedFingerprint();
    this.#channel = openChannel(`turnledger credential ${place}`);
    this.#channel?.addEventListener("message", (event: MessageEvent<CredentialMessage>) =>
      this.#receive(event.data.mark),
    );
    const { signal } = this.#ending;
    addEventListener("storage", (event) => this.#notice(event), { signal });
    // A page in the back/forward cache receives no events.
    addEventListener("pageshow", () => this.#look(), { signal });
    document.addEventListener("visibilitychange", () => this.#look(), { signal });
    this.#sweep();
  }

  get token(): string | null {
    return this.#unkept ?? this.#storage.getItem(this.#name);
  }

  /** The storage that belongs to this credential alone. */
  storage(): StorageScope {
    return new StorageScope(storageScopeName(this.slot, this.#fingerprint), this.#storage);
  }

  /** Replace the token, or remove it, with all data of the former one, here and in other tabs. */
  replace(token: string | null): void {
    this.#remove((name) => name !== this.#name);
    this.#unkept = null;
    try {
      if (token === null) this.#storage.removeItem(this.#name);
      else this.#storage.setItem(this.#name, token);
    } catch {
      this.#storage.removeItem(this.#name);
      this.#unkept = token; // the storage is full: other pages will ask for the token again
    }
    this.#fingerprint = this.#storedFingerprint();
    this.#channel?.postMessage({ mark: this.#fingerprint } satisfies CredentialMessage);
  }

  close(): void {
    clearTimeout(this.#lookTimer);
    this.#ending.abort();
    this.#channel?.close();
  }

  get #name(): string {
    return `${STORAGE_PREFIX}${this.slot}:token`;
  }

  #storedFingerprint(): string {
    const { token } = this;
    return token === null ? NOBODY : fingerprintOf(token);
  }

  /** Another tab has announced a token. Its storage event may come later. */
  #receive(mark: string): void {
    if (mark === this.#fingerprint) return;
    clearTimeout(this.#lookTimer);
    if (this.#storedFingerprint() === mark) this.#look();
    else this.#lookTimer = setTimeout(() => this.#look(), BELIEVED);
  }

  #notice({ key, storageArea }: StorageEvent): void {
    if (storageArea !== this.#storage) return;
    if (key === null || key === this.#name) this.#look();
    // A tab that has not noticed yet may have stored data of the former credential.
    else this.#sweep();
  }

  #look(): void {
    const mark = this.#storedFingerprint();
    if (mark === this.#fingerprint) return;
    clearTimeout(this.#lookTimer);
    this.#fingerprint = mark;
    this.#sweep();
    this.#changed();
  }

  /** Remove what belongs to any other credential. */
  #sweep(): void {
    const scope = storageScopeName(this.slot, this.#fingerprint);
    this.#remove((name) => !name.startsWith(`${STORAGE_PREFIX}${this.slot}:`) && !belongsToScope(name, scope));
  }

  #remove(isUnwanted: (name: string) => boolean): void {
    for (const storage of [this.#storage, tabStorage()]) {
      const names = storedKeys(storage).filter((name) => belongsToSlot(name, this.slot) && isUnwanted(name));
      for (const name of names) storage.removeItem(name);
    }
  }
}
