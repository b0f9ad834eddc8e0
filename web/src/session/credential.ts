/** The token of a slot, shared by all tabs of this browser. Replacing it removes everything that belonged to the former
 * one. */

import { openChannel } from "../browser/broadcast-channel";
import { belongsToSlot, belongsToScope, StorageScope, storageScopeName } from "./storage-scope";
import { fingerprintOf } from "./token-format";
import { storedKeys, STORAGE_PREFIX, browserStorage, tabStorage, type KeyValueStorage } from "../browser/storage";

/** Where people come in with their own token. */
export const OWN_SLOT = "own";
/** The mark of who has no token. */
const NOBODY = "nobody";
/** Milliseconds for which a tab waits to see in the storage what another tab has told it. */
const BELIEVED = 2_000;

/** What tabs tell one another: never the token itself. */
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

  /** `changed`: called when another tab has replaced the token or removed it; by then nothing of the former is left. */
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
    // A page that was put aside has heard nothing meanwhile.
    addEventListener("pageshow", () => this.#look(), { signal });
    document.addEventListener("visibilitychange", () => this.#look(), { signal });
    this.#sweep();
  }

  /** The token that is kept; null: none. */
  get token(): string | null {
    return this.#unkept ?? this.#storage.getItem(this.#name);
  }

  /** What belongs to it, and to no other. */
  storage(): StorageScope {
    return new StorageScope(storageScopeName(this.slot, this.#fingerprint), this.#storage);
  }

  /** Have another token in the place of this one, or none: of the former one nothing stays, here or in other tabs. */
  replace(token: string | null): void {
    this.#remove((name) => name !== this.#name);
    this.#unkept = null;
    try {
      if (token === null) this.#storage.removeItem(this.#name);
      else this.#storage.setItem(this.#name, token);
    } catch {
      this.#storage.removeItem(this.#name);
      this.#unkept = token; // there is no room for it: other pages will ask for it again
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

  /** Another tab says that it has put a token there. Storages are told of it in their own time. */
  #receive(mark: string): void {
    if (mark === this.#fingerprint) return;
    clearTimeout(this.#lookTimer);
    if (this.#storedFingerprint() === mark) this.#look();
    else this.#lookTimer = setTimeout(() => this.#look(), BELIEVED);
  }

  #notice({ key, storageArea }: StorageEvent): void {
    if (storageArea !== this.#storage) return;
    if (key === null || key === this.#name) this.#look();
    // A tab that has not heard yet wrote something down for the former one.
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

  /** Remove what belongs to any other. */
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
