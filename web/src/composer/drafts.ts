/** Unsent drafts, one per chat, stored in the storage scope and shared by all tabs. */

import { freshKey } from "turnledger";
import { STORAGE_PREFIX as ALL } from "../browser/storage";
import { type StorageScope } from "../session/storage-scope";

/** The place of the chat that is not made yet. */
export const NEW_CHAT = "new";

const PREFIX = "draft:";
/** Milliseconds between two writes while somebody types. */
const PAUSE = 300;

/** How much is kept: so many drafts, and so many characters in all of them. The oldest go first. */
export interface DraftLimits {
  readonly drafts: number;
  readonly characters: number;
}

const BOUNDS: DraftLimits = { drafts: 100, characters: 1_000_000 };

interface Kept {
  readonly text: string;
  readonly at: number;
  /** The tab that wrote it. */
  readonly by: string;
}

/** Told what another tab wrote for a place; empty: it was sent there, or taken away. */
type DraftListener = (text: string) => void;

export class Drafts {
  readonly #storage: StorageScope;
  readonly #bounds: DraftLimits;
  readonly #tab = freshKey();
  /** What is not written yet. */
  readonly #waiting = new Map<string, string>();
  readonly #listeners = new Map<string, Set<DraftListener>>();
  readonly #ending = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #last = 0;
  /** What was found for a new chat, whichever tab has written it. */
  #taken = "";

  constructor(storage: StorageScope, bounds: DraftLimits = BOUNDS) {
    this.#storage = storage;
    this.#bounds = bounds;
    const { signal } = this.#ending;
    const flush = (): void => this.flush();
    addEventListener("pagehide", flush, { signal });
    document.addEventListener("visibilitychange", flush, { signal });
    addEventListener("storage", (event) => this.#hear(event), { signal });
  }

  /** How many characters a draft may have to be kept. */
  get maxLength(): number {
    return this.#bounds.characters;
  }

  /** What was written there; empty: nothing. */
  read(place: string): string {
    return this.#waiting.get(place) ?? this.#kept(place)?.text ?? "";
  }

  /** Read it, to go on writing there: of a new chat, it is this tab's from now on, as it is after a reload. */
  open(place: string): string {
    const text = this.read(place);
    if (place === NEW_CHAT) this.#taken = text;
    return text;
  }

  /** Keep what is written there by now, in a moment: others who type need the machine, too. */
  write(place: string, text: string): void {
    if (this.#ending.signal.aborted) return;
    this.#waiting.set(place, text);
    this.#timer ??= setTimeout(() => this.flush(), PAUSE);
  }

  /** Keep what is written there by now, at once. Returns whether it is kept: there may be no room. */
  writeNow(place: string, text: string): boolean {
    if (this.#ending.signal.aborted) return false;
    this.#waiting.delete(place);
    return this.#set(place, text);
  }

  /** A chat is not there any more. */
  drop(place: string): void {
    this.#waiting.delete(place);
    this.#storage.set(PREFIX + place, null);
  }

  /** Write down what waits for it. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const [place, text] of waiting) this.#set(place, text);
  }

  /** Be told what other tabs write there, until what is returned is called. */
  listen(place: string, listener: DraftListener): () => void {
    const told = this.#listeners.get(place) ?? new Set();
    this.#listeners.set(place, told.add(listener));
    return () => told.delete(listener);
  }

  /** What is not written by now never will be: whose it was may be gone. */
  close(): void {
    this.#ending.abort();
    clearTimeout(this.#timer);
    this.#waiting.clear();
    this.#listeners.clear();
  }

  #set(place: string, text: string): boolean {
    // A new chat is another one in each tab: what another has written for his stays.
    const there = this.#kept(place);
    if (text === "" && place === NEW_CHAT && there && there.by !== this.#tab && there.text !== this.#taken) return true;
    if ((there?.text ?? "") === text) return true;
    this.#last = Math.max(Date.now(), this.#last + 1);
    const kept = JSON.stringify({ text, at: this.#last, by: this.#tab } satisfies Kept);
    if (text === "") {
      // Other tabs are told that it is empty; of one that only found no room here they keep what they show.
      this.#storage.set(PREFIX + place, kept);
      return this.#storage.set(PREFIX + place, null);
    }
    if (text.length > this.#bounds.characters) return this.#storage.set(PREFIX + place, null) && false;
    this.#makeRoom(place, text.length);
    return this.#storage.set(PREFIX + place, kept) || this.#setInPlaceOf(this.#others(place), place, kept);
  }

  /** The browser has no more room: others give way, the oldest first. If that does not help, they stay. */
  #setInPlaceOf(others: readonly [string, Kept][], place: string, kept: string): boolean {
    for (const [other] of others) {
      this.#storage.set(PREFIX + other, null);
      if (this.#storage.set(PREFIX + place, kept)) return true;
    }
    for (const [other, value] of others) this.#storage.set(PREFIX + other, JSON.stringify(value));
    return false;
  }

  #makeRoom(place: string, wanted: number): void {
    const others = this.#others(place);
    let characters = others.reduce((sum, [, { text }]) => sum + text.length, wanted);
    let count = others.length + 1;
    for (const [other, { text }] of others) {
      if (count <= this.#bounds.drafts && characters <= this.#bounds.characters) return;
      this.drop(other);
      count -= 1;
      characters -= text.length;
    }
  }

  /** All but one, the oldest first. */
  #others(place: string): [string, Kept][] {
    const places = this.#storage.names(PREFIX).map((name) => name.slice(PREFIX.length));
    const found = places.flatMap((each): [string, Kept][] => {
      const kept = each === place ? null : this.#kept(each);
      return kept ? [[each, kept]] : [];
    });
    return found.sort(([, one], [, other]) => one.at - other.at);
  }

  #kept(place: string): Kept | null {
    return keptOf(this.#storage.get(PREFIX + place));
  }

  #hear({ key, newValue }: StorageEvent): void {
    const beginning = `${ALL}${this.#storage.name}:${PREFIX}`;
    const kept = keptOf(newValue);
    if (kept === null || !key?.startsWith(beginning)) return;
    const place = key.slice(beginning.length);
    // What is being written here is written down in a moment, and then the others follow.
    if (this.#waiting.has(place)) return;
    for (const listener of [...(this.#listeners.get(place) ?? [])]) listener(kept.text);
  }
}

/** The draft that was written down; none, if it is something else. */
function keptOf(value: string | null): Kept | null {
  try {
    const found = JSON.parse(value ?? "null") as Partial<Kept> | null;
    return typeof found?.text === "string" ? { text: found.text, at: found.at ?? 0, by: found.by ?? "" } : null;
  } catch {
    return null;
  }
}
