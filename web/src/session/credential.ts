/** The token at a place, as all tabs of this browser have it. One that replaces another leaves nothing of that. */

import { channelOf } from "../browser/broadcast-channel";
import { isOfPlace, isOfRealm, Realm, realmName } from "./storage-scope";
import { markOf } from "./token-format";
import { namesIn, PREFIX, storageHere, storageOfTab, type KeptStorage } from "../browser/storage";

/** Where people come in with their own token. */
export const OWN = "own";
/** The mark of who has no token. */
const NOBODY = "nobody";
/** Milliseconds for which a tab waits to see in the storage what another tab has told it. */
const BELIEVED = 2_000;

/** What tabs tell one another: never the token itself. */
interface Told {
  readonly mark: string;
}

export class Credential {
  /** `own`, or the name of a link. */
  readonly place: string;
  readonly #storage: KeptStorage;
  readonly #channel: BroadcastChannel | null;
  readonly #ending = new AbortController();
  readonly #changed: () => void;
  #mark: string;
  #unkept: string | null = null;
  #believing: ReturnType<typeof setTimeout> | undefined;

  /** `changed`: called when another tab has replaced the token or removed it; by then nothing of the former is left. */
  constructor(place: string, changed: () => void, storage: KeptStorage = storageHere()) {
    this.place = place;
    this.#changed = changed;
    this.#storage = storage;
    this.#mark = this.#markHere();
    this.#channel = channelOf(`turnledger credential ${place}`);
    this.#channel?.addEventListener("message", (event: MessageEvent<Told>) => this.#hear(event.data.mark));
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
  realm(): Realm {
    return new Realm(realmName(this.place, this.#mark), this.#storage);
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
    this.#mark = this.#markHere();
    this.#channel?.postMessage({ mark: this.#mark } satisfies Told);
  }

  close(): void {
    clearTimeout(this.#believing);
    this.#ending.abort();
    this.#channel?.close();
  }

  get #name(): string {
    return `${PREFIX}${this.place}:token`;
  }

  #markHere(): string {
    const { token } = this;
    return token === null ? NOBODY : markOf(token);
  }

  /** Another tab says that it has put a token there. Storages are told of it in their own time. */
  #hear(mark: string): void {
    if (mark === this.#mark) return;
    clearTimeout(this.#believing);
    if (this.#markHere() === mark) this.#look();
    else this.#believing = setTimeout(() => this.#look(), BELIEVED);
  }

  #notice({ key, storageArea }: StorageEvent): void {
    if (storageArea !== this.#storage) return;
    if (key === null || key === this.#name) this.#look();
    // A tab that has not heard yet wrote something down for the former one.
    else this.#sweep();
  }

  #look(): void {
    const mark = this.#markHere();
    if (mark === this.#mark) return;
    clearTimeout(this.#believing);
    this.#mark = mark;
    this.#sweep();
    this.#changed();
  }

  /** Remove what belongs to any other. */
  #sweep(): void {
    const realm = realmName(this.place, this.#mark);
    this.#remove((name) => !name.startsWith(`${PREFIX}${this.place}:`) && !isOfRealm(name, realm));
  }

  #remove(isUnwanted: (name: string) => boolean): void {
    for (const storage of [this.#storage, storageOfTab()]) {
      const names = namesIn(storage).filter((name) => isOfPlace(name, this.place) && isUnwanted(name));
      for (const name of names) storage.removeItem(name);
    }
  }
}
