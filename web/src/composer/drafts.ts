/** Unsent drafts, one per chat, stored in the storage scope and shared by all tabs. */

import { freshKey } from "turnledger";
import { STORAGE_PREFIX as ALL } from "../browser/storage";
import { type StorageScope } from "../session/storage-scope";

/** The key of a chat that does not exist yet. */
export const NEW_CHAT = "new";

const PREFIX = "draft:";
/** Milliseconds between two writes while the user types. */
const PAUSE = 300;

/** Limits: how many drafts, and how many characters in total. The oldest are removed first. */
export interface DraftLimits {
  readonly drafts: number;
  readonly characters: number;
}

const BOUNDS: DraftLimits = { drafts: 100, characters: 1_000_000 };

interface Kept {
  readonly text: string;
  readonly at: number;
  readonly by: string;
}

/** Receives what another tab wrote for a key; empty: it was sent or removed there. */
type DraftListener = (text: string) => void;

export class Drafts {
  readonly #storage: StorageScope;
  readonly #bounds: DraftLimits;
  readonly #tab = freshKey();
  /** Drafts that are not stored yet. */
  readonly #waiting = new Map<string, string>();
  readonly #listeners = new Map<string, Set<DraftListener>>();
  readonly #ending = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #last = 0;
  /** The stored draft of a new chat, whichever tab wrote it. */
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

  get maxLength(): number {
    return this.#bounds.characters;
  }

  read(place: string): string {
    return this.#waiting.get(place) ?? this.#kept(place)?.text ?? "";
  }

  /** Read a draft to continue it. The draft of a new chat belongs to this tab from now on, as after a reload. */
  open(place: string): string {
    const text = this.read(place);
    if (place === NEW_CHAT) this.#taken = text;
    return text;
  }

  /** Store a draft after a short pause, so that typing stays fast. */
  write(place: string, text: string): void {
    if (this.#ending.signal.aborted) return;
    this.#waiting.set(place, text);
    this.#timer ??= setTimeout(() => this.flush(), PAUSE);
  }

  /** Store a draft now. Returns whether it worked: the storage may be full. */
  writeNow(place: string, text: string): boolean {
    if (this.#ending.signal.aborted) return false;
    this.#waiting.delete(place);
    return this.#set(place, text);
  }

  drop(place: string): void {
    this.#waiting.delete(place);
    this.#storage.set(PREFIX + place, null);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const [place, text] of waiting) this.#set(place, text);
  }

  /** Listen to what other tabs write, until the returned function is called. */
  listen(place: string, listener: DraftListener): () => void {
    const told = this.#listeners.get(place) ?? new Set();
    this.#listeners.set(place, told.add(listener));
    return () => told.delete(listener);
  }

  /** Discard waiting drafts: their owner may have signed out. */
  close(): void {
    this.#ending.abort();
    clearTimeout(this.#timer);
    this.#waiting.clear();
    this.#listeners.clear();
  }

  #set(place: string, text: string): boolean {
    // New chats are separate in each tab: keep what another tab wrote for its own.
    const there = this.#kept(place);
    if (text === "" && place === NEW_CHAT && there && there.by !== this.#tab && there.text !== this.#taken) return true;
    if ((there?.text ?? "") === text) return true;
    this.#last = Math.max(Date.now(), this.#last + 1);
    const kept = JSON.stringify({ text, at: this.#last, by: this.#tab } satisfies Kept);
    if (text === "") {
      // Other tabs learn that it is empty; after a mere lack of room they keep what they show.
      this.#storage.set(PREFIX + place, kept);
      return this.#storage.set(PREFIX + place, null);
    }
    if (text.length > this.#bounds.characters) return this.#storage.set(PREFIX + place, null) && false;
    this.#makeRoom(place, text.length);
    return this.#storage.set(PREFIX + place, kept) || this.#setInPlaceOf(this.#others(place), place, kept);
  }

  /** The storage is full: remove older drafts, oldest first, until this one fits. If it never does, put them back. */
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

  /** All drafts but one, oldest first. */
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
    // This tab is about to store its own draft, which the others then take over.
    if (this.#waiting.has(place)) return;
    for (const listener of [...(this.#listeners.get(place) ?? [])]) listener(kept.text);
  }
}

/** Parse a stored draft; null if it is something else. */
function keptOf(value: string | null): Kept | null {
  try {
    const found = JSON.parse(value ?? "null") as Partial<Kept> | null;
    return typeof found?.text === "string" ? { text: found.text, at: found.at ?? 0, by: found.by ?? "" } : null;
  } catch {
    return null;
  }
}
