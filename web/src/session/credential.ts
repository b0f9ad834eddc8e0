/** The token of a slot, shared by all tabs of this browser. Replacing it removes everything that belonged to the former
 * one. */

import { openChannel } from "../browser/broadcast-channel";
import { belongsToSlot, belongsToScope, StorageScope, storageScopeName } from "./storage-scope";
import { fingerprintOf } from "./token-format";
import { storedKeys, STORAGE_PREFIX, browserStorage, tabStorage, type KeyValueStorage } from "../browser/storage";

/** The slot of a user's own token. */
export const OWN_SLOT = "own";
/** The fingerprint without a token. */
const NO_TOKEN = "nobody";
/** Milliseconds that a tab waits for the storage to show a token that another tab has announced. */
const STORAGE_DELAY = 2_000;

/** Messages between tabs: never the token itself. */
interface CredentialMessage {
  readonly fingerprint: string;
}

export class Credential {
  /** `own`, or the name of a link. */
  readonly slot: string;
  readonly #storage: KeyValueStorage;
  readonly #channel: BroadcastChannel | null;
  readonly #ending = new AbortController();
  readonly #onReplaced: () => void;
  #fingerprint: string;
  #unstoredToken: string | null = null;
  #checkTimer: ReturnType<typeof setTimeout> | undefined;

  /** `onReplaced`: called when another tab has replaced or removed the token, after the data of the former one is
   * removed. */
  constructor(slot: string, onReplaced: () => void, storage: KeyValueStorage = browserStorage()) {
    this.slot = slot;
    this.#onReplaced = onReplaced;
    this.#storage = storage;
    this.#fingerprint = this.#storedFingerprint();
    this.#channel = openChannel(`turnledger credential ${slot}`);
    this.#channel?.addEventListener("message", (event: MessageEvent<CredentialMessage>) =>
      this.#receive(event.data.fingerprint),
    );
    const { signal } = this.#ending;
    addEventListener("storage", (event) => this.#storageChanged(event), { signal });
    // A page in the back/forward cache receives no events.
    addEventListener("pageshow", () => this.#check(), { signal });
    document.addEventListener("visibilitychange", () => this.#check(), { signal });
    this.#sweep();
  }

  get token(): string | null {
    return this.#unstoredToken ?? this.#storage.getItem(this.#name);
  }

  /** The storage that belongs to this credential alone. */
  storage(): StorageScope {
    return new StorageScope(storageScopeName(this.slot, this.#fingerprint), this.#storage);
  }

  /** Replace the token, or remove it, with all data of the former one, here and in other tabs. */
  replace(token: string | null): void {
    this.#remove((name) => name !== this.#name);
    this.#unstoredToken = null;
    try {
      if (token === null) this.#storage.removeItem(this.#name);
      else this.#storage.setItem(this.#name, token);
    } catch {
      this.#storage.removeItem(this.#name);
      this.#unstoredToken = token; // the storage is full: other pages will ask for the token again
    }
    this.#fingerprint = this.#storedFingerprint();
    this.#channel?.postMessage({ fingerprint: this.#fingerprint } satisfies CredentialMessage);
  }

  close(): void {
    clearTimeout(this.#checkTimer);
    this.#ending.abort();
    this.#channel?.close();
  }

  get #name(): string {
    return `${STORAGE_PREFIX}${this.slot}:token`;
  }

  #storedFingerprint(): string {
    const { token } = this;
    return token === null ? NO_TOKEN : fingerprintOf(token);
  }

  /** Another tab has announced a token. Its storage event may come later. */
  #receive(fingerprint: string): void {
    if (fingerprint === this.#fingerprint) return;
    clearTimeout(this.#checkTimer);
    if (this.#storedFingerprint() === fingerprint) this.#check();
    else this.#checkTimer = setTimeout(() => this.#check(), STORAGE_DELAY);
  }

  #storageChanged({ key, storageArea }: StorageEvent): void {
    if (storageArea !== this.#storage) return;
    if (key === null || key === this.#name) this.#check();
    // A tab that has not noticed yet may have stored data of the former credential.
    else this.#sweep();
  }

  #check(): void {
    const fingerprint = this.#storedFingerprint();
    if (fingerprint === this.#fingerprint) return;
    clearTimeout(this.#checkTimer);
    this.#fingerprint = fingerprint;
    this.#sweep();
    this.#onReplaced();
  }

  /** Remove what belongs to any other credential. */
  #sweep(): void {
    const scope = storageScopeName(this.slot, this.#fingerprint);
    this.#remove((name) => !name.startsWith(`${STORAGE_PREFIX}${this.slot}:`) && !belongsToScope(name, scope));
  }

  #remove(isObsolete: (name: string) => boolean): void {
    for (const storage of [this.#storage, tabStorage()]) {
      const names = storedKeys(storage).filter((name) => belongsToSlot(name, this.slot) && isObsolete(name));
      for (const name of names) storage.removeItem(name);
    }
  }
}
