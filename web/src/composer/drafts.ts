/** Unsent drafts, one per chat, stored in the storage scope and shared by all tabs. */

import { freshKey } from "turnledger";
import { STORAGE_PREFIX } from "../browser/storage";
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

const DEFAULT_LIMITS: DraftLimits = { drafts: 100, characters: 1_000_000 };

interface StoredDraft {
  readonly text: string;
  readonly at: number;
  readonly by: string;
}

/** Receives the draft that another tab wrote; empty: it was sent or removed there. */
type DraftListener = (text: string) => void;

export class Drafts {
  readonly #storage: StorageScope;
  readonly #limits: DraftLimits;
  readonly #tab = freshKey();
  /** Drafts that are not stored yet. */
  readonly #waiting = new Map<string, string>();
  readonly #listeners = new Map<string, Set<DraftListener>>();
  readonly #ending = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #last = 0;
  /** The stored draft of a new chat, whichever tab wrote it. */
  #taken = "";

  constructor(storage: StorageScope, limits: DraftLimits = DEFAULT_LIMITS) {
    this.#storage = storage;
    this.#limits = limits;
    const { signal } = this.#ending;
    const flush = (): void => this.flush();
    addEventListener("pagehide", flush, { signal });
    document.addEventListener("visibilitychange", flush, { signal });
    addEventListener("storage", (event) => this.#receive(event), { signal });
  }

  get maxLength(): number {
    return this.#limits.characters;
  }

  read(name: string): string {
    return this.#waiting.get(name) ?? this.#stored(name)?.text ?? "";
  }

  /** Read a draft to continue it. The draft of a new chat belongs to this tab from now on, as after a reload. */
  open(name: string): string {
    const text = this.read(name);
    if (name === NEW_CHAT) this.#taken = text;
    return text;
  }

  /** Store a draft after a short pause, so that typing stays fast. */
  write(name: string, text: string): void {
    if (this.#ending.signal.aborted) return;
    this.#waiting.set(name, text);
    this.#timer ??= setTimeout(() => this.flush(), PAUSE);
  }

  /** Store a draft now. Returns whether it worked: the storage may be full. */
  writeNow(name: string, text: string): boolean {
    if (this.#ending.signal.aborted) return false;
    this.#waiting.delete(name);
    return this.#set(name, text);
  }

  drop(name: string): void {
    this.#waiting.delete(name);
    this.#storage.set(PREFIX + name, null);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const [name, text] of waiting) this.#set(name, text);
  }

  /** Listen to drafts of other tabs, until the returned function is called. */
  listen(name: string, listener: DraftListener): () => void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Discard waiting drafts: their owner may have signed out. */
  close(): void {
    this.#ending.abort();
    clearTimeout(this.#timer);
    this.#waiting.clear();
    this.#listeners.clear();
  }

  #set(name: string, text: string): boolean {
    // New chats are separate in each tab: keep the draft that another tab wrote for its own.
    const stored = this.#stored(name);
    const isForeign = stored !== null && stored.by !== this.#tab && stored.text !== this.#taken;
    if (text === "" && name === NEW_CHAT && isForeign) return true;
    if ((stored?.text ?? "") === text) return true;
    this.#last = Math.max(Date.now(), this.#last + 1);
    const value = JSON.stringify({ text, at: this.#last, by: this.#tab } satisfies StoredDraft);
    if (text === "") {
      // Other tabs learn that it is empty; if the storage is only full, they keep their text.
      this.#storage.set(PREFIX + name, value);
      return this.#storage.set(PREFIX + name, null);
    }
    if (text.length > this.#limits.characters) return this.#storage.set(PREFIX + name, null) && false;
    this.#makeRoom(name, text.length);
    return this.#storage.set(PREFIX + name, value) || this.#setInPlaceOf(this.#others(name), name, value);
  }

  /** The storage is full: remove older drafts, oldest first, until this one fits. If it never does, put them back. */
  #setInPlaceOf(others: readonly [string, StoredDraft][], name: string, value: string): boolean {
    for (const [other] of others) {
      this.#storage.set(PREFIX + other, null);
      if (this.#storage.set(PREFIX + name, value)) return true;
    }
    for (const [other, draft] of others) this.#storage.set(PREFIX + other, JSON.stringify(draft));
    return false;
  }

  #makeRoom(name: string, length: number): void {
    const others = this.#others(name);
    let characters = others.reduce((sum, [, { text }]) => sum + text.length, length);
    let count = others.length + 1;
    for (const [other, { text }] of others) {
      if (count <= this.#limits.drafts && characters <= this.#limits.characters) return;
      this.drop(other);
      count -= 1;
      characters -= text.length;
    }
  }

  /** All drafts but one, oldest first. */
  #others(name: string): [string, StoredDraft][] {
    const names = this.#storage.names(PREFIX).map((name) => name.slice(PREFIX.length));
    const found = names.flatMap((each): [string, StoredDraft][] => {
      const draft = each === name ? null : this.#stored(each);
      return draft ? [[each, draft]] : [];
    });
    return found.sort(([, one], [, other]) => one.at - other.at);
  }

  #stored(name: string): StoredDraft | null {
    return parseDraft(this.#storage.get(PREFIX + name));
  }

  #receive({ key, newValue }: StorageEvent): void {
    const beginning = `${STORAGE_PREFIX}${this.#storage.name}:${PREFIX}`;
    const draft = parseDraft(newValue);
    if (draft === null || !key?.startsWith(beginning)) return;
    const name = key.slice(beginning.length);
    // This tab is about to store its own draft, which the others then take over.
    if (this.#waiting.has(name)) return;
    for (const listener of [...(this.#listeners.get(name) ?? [])]) listener(draft.text);
  }
}

/** Parse a stored draft; null if it is something else. */
function parseDraft(value: string | null): StoredDraft | null {
  try {
    const found = JSON.parse(value ?? "null") as Partial<StoredDraft> | null;
    return typeof found?.text === "string" ? { text: found.text, at: found.at ?? 0, by: found.by ?? "" } : null;
  } catch {
    return null;
  }
}
