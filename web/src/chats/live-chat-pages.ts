/** The chats of one list: the pages read so far, updated by the change feed. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type ChatInfo, type Client, type Page } from "turnledger";
import { waitFor } from "../browser/wait-for";
import {
  withUpdate,
  byLastUse,
  createdAtOf,
  mergeRow,
  rowOf,
  rowOfUpdate,
  type ListPosition,
  type ChatRow,
  type ChatUpdate,
} from "./chat-row";

export type ChatListKind = "chats" | "archived" | "deleted";

interface ChatFilter {
  readonly kind: ChatListKind;
  /** Null: of all scopes. */
  readonly scope: string | null;
  /** Null: with any tags or none. */
  readonly tag?: string | null;
}

/** Chats that were changed or removed during a read; its result may be older. */
interface ConcurrentChanges {
  readonly changed: Set<string>;
  readonly removed: Set<string>;
}

/** Milliseconds in which lookups of single chats are batched, and up to how many are looked up one by one. */
const BATCH_TIME = 50;
const MAX_LOOKUPS = 8;
/** A chat was imported if it is this many milliseconds younger than its id. */
const IMPORT_AGE = 3_600_000;

export class ChatPages {
  readonly filter: ChatFilter;
  readonly #client: Client;
  readonly #isElsewhere: (id: string) => boolean;
  readonly #rows = new Map<string, ChatRow>();
  readonly #version = signal(0);
  readonly #isWhole = signal(false);
  readonly #isLoaded = signal(false);
  readonly #isReading = signal(false);
  readonly #problem = signal<unknown>(null);
  readonly #ending = new AbortController();
  readonly #concurrent = new Set<ConcurrentChanges>();
  /** The running turn of each chat. */
  readonly #runs = new Map<string, string>();
  readonly #missing = new Set<string>();
  #pages: AsyncGenerator<Page<ChatInfo>, void, undefined> | null = null;
  #generation = 0;
  #needed = 1;
  /** The last chat up to which the rows are current; null: none. */
  #freshTo: ListPosition | null = null;
  #isFreshToTheEnd = false;
  /** The last chat that was read. Later ones are not shown, since chats between may be missing. */
  #knownTo: ListPosition | null = null;

  /** `isElsewhere`: whether another list is known to hold a chat. */
  constructor(client: Client, filter: ChatFilter, isElsewhere: (id: string) => boolean = () => false) {
    this.#client = client;
    this.filter = filter;
    this.#isElsewhere = isElsewhere;
  }

  /** The known chats, by last use. */
  readonly rows: ReadonlySignal<readonly ChatRow[]> = computed(() => {
    void this.#version.value;
    const to = this.#isWhole.value ? null : this.#knownTo;
    const known = [...this.#rows.values()].filter((row) => row.pinned || to === null || byLastUse(row, to) <= 0);
    return known.sort(byLastUse);
  });

  get isWhole(): ReadonlySignal<boolean> {
    return this.#isWhole;
  }
  get isLoaded(): ReadonlySignal<boolean> {
    return this.#isLoaded;
  }
  /** Why the rest could not be read. */
  get problem(): ReadonlySignal<unknown> {
    return this.#problem;
  }

  row(id: string): ChatRow | undefined {
    return this.#rows.get(id);
  }

  /** Read until this many chats are current, or all; a call during a read waits for it. Returns the `asOf` of the first
   * page, if this call read it. */
  async need(count: number): Promise<string | undefined> {
    if (this.#isReading.peek()) {
      this.#needed = Math.max(this.#needed, count);
      await waitFor(() => !this.#isReading.value);
      return undefined;
    }
    this.#needed = count;
    this.#isReading.value = true;
    let asOf: string | undefined;
    // A refresh during a read starts this loop again.
    for (let generation = -1; generation !== this.#generation && !this.#ending.signal.aborted;) {
      generation = this.#generation;
      try {
        while (generation === this.#generation && this.#lacks()) asOf = (await this.#next()) ?? asOf;
      } catch (problem) {
        if (generation === this.#generation) generation = this.#restart(problem);
      }
    }
    this.#isReading.value = false;
    return asOf;
  }

  /** Read everything again, as far as needed; until then the rows stay. */
  async refresh(): Promise<void> {
    this.#restart(null);
    this.#runs.clear();
    await this.need(this.#needed);
  }

  put(...chats: readonly ChatInfo[]): void {
    for (const chat of chats) {
      this.#noteConcurrent(chat.id, "changed");
      this.#set(mergeRow(this.#rows.get(chat.id), this.#rowOf(chat), false));
    }
    this.#version.value += 1;
  }

  /** Remove a chat that was deleted or restored. */
  drop(id: string): void {
    this.#remove(id);
    this.#version.value += 1;
  }

  close(): void {
    this.#ending.abort();
    this.#generation += 1;
  }

  /** Whether some of the needed chats are not current. */
  #lacks(): boolean {
    if (this.#freshTo === null) return !this.#isFreshToTheEnd;
    if (this.#isFreshToTheEnd) return false;
    const to = this.#freshTo;
    let fresh = 0;
    for (const row of this.#rows.values()) if (byLastUse(row, to) <= 0) fresh += 1;
    return fresh < this.#needed;
  }

  #restart(problem: unknown): number {
    this.#pages = null;
    this.#freshTo = null;
    this.#isFreshToTheEnd = false;
    this.#problem.value = problem;
    return (this.#generation += 1);
  }

  /** Read the next page. Returns the `asOf` of the first one. */
  async #next(): Promise<string | undefined> {
    const generation = this.#generation;
    const isFirst = this.#pages === null;
    this.#pages ??= this.#list({}).pages();
    const pages = this.#pages;
    const [next, concurrent] = await this.#track(() => pages.next());
    if (generation !== this.#generation) return undefined;
    const page: Page<ChatInfo> = next.done ? { data: [], next: null } : next.value;
    this.#take(page, concurrent);
    // Pinned chats come first, however long ago they were used.
    if (isFirst && page.next !== null && this.filter.kind === "chats") await this.#readPinned(generation);
    if (generation !== this.#generation) return undefined;
    this.#isWhole.value = this.#isFreshToTheEnd;
    this.#isLoaded.value = true;
    this.#version.value += 1;
    return isFirst ? page.asOf : undefined;
  }

  #list(more: { pinned?: boolean }) {
    const { kind, scope, tag } = this.filter;
    const flags = kind === "deleted" ? { deleted: true } : { archived: kind === "archived" };
    return this.#client.chats.list({
      ...flags,
      ...more,
      ...(scope !== null && { scope }),
      ...(tag != null && { tag }),
      signal: this.#ending.signal,
    });
  }

  /** A page lists all chats between two positions: others in that range are gone. */
  #take(page: Page<ChatInfo>, { changed, removed }: ConcurrentChanges): void {
    const from = this.#freshTo;
    const last = page.data.at(-1);
    const to = page.next === null || last === undefined ? null : last;
    const listed = new Set(page.data.map(({ id }) => id));
    for (const row of [...this.#rows.values()]) {
      const isBetween = (from === null || byLastUse(row, from) > 0) && (to === null || byLastUse(row, to) <= 0);
      if (isBetween && !listed.has(row.id) && !changed.has(row.id)) this.#rows.delete(row.id);
    }
    this.#add(page.data, { changed, removed });
    this.#isFreshToTheEnd = page.next === null;
    if (last === undefined) return;
    this.#freshTo = { id: last.id, touchedAt: last.touchedAt };
    if (this.#knownTo === null || byLastUse(this.#freshTo, this.#knownTo) > 0) this.#knownTo = this.#freshTo;
  }

  #add(chats: readonly ChatInfo[], { changed, removed }: ConcurrentChanges): void {
    for (const chat of chats) {
      if (removed.has(chat.id)) continue;
      this.#set(mergeRow(this.#rows.get(chat.id), this.#rowOf(chat), changed.has(chat.id)));
    }
  }

  #rowOf(chat: ChatInfo): ChatRow {
    return rowOf(chat, this.#runs.has(chat.id) || this.#rows.get(chat.id)?.isRunning);
  }

  async #readPinned(generation: number): Promise<void> {
    const [pinned, concurrent] = await this.#track(() => this.#list({ pinned: true }).all());
    if (generation !== this.#generation) return;
    const listed = new Set(pinned.map(({ id }) => id));
    for (const row of [...this.#rows.values()]) {
      if (row.pinned && !listed.has(row.id) && !concurrent.changed.has(row.id)) this.#rows.delete(row.id);
    }
    this.#add(pinned, concurrent);
  }

  async #track<Read>(read: () => Promise<Read>): Promise<[Read, ConcurrentChanges]> {
    const concurrent = { changed: new Set<string>(), removed: new Set<string>() };
    this.#concurrent.add(concurrent);
    try {
      return [await read(), concurrent];
    } finally {
      this.#concurrent.delete(concurrent);
    }
  }

  applyChange(change: Change): void {
    // Deleted chats run no turns, and are not renamed.
    if (this.filter.kind === "deleted" && change.type.startsWith("turn.")) return;
    switch (change.type) {
      case "gap":
        void this.refresh();
        return;
      case "start":
        if (!this.#isLoaded.peek() && this.#problem.peek() !== null) void this.refresh();
        return;
      case "chat.deleted":
        this.#remove(change.chat);
        break;
      case "chat.created":
      case "chat.changed":
      case "chat.restored":
      case "chat.switched":
        this.#applyUpdate(change);
        break;
      case "turn.running":
        if (change.branch !== undefined) return; // it runs beside the branch that the chat shows
        this.#runs.set(change.chat, change.turn);
        this.#touch(change.chat, (row) => ({ ...row, isRunning: true }));
        break;
      case "turn.committed":
        this.#endTurn(change.chat, change.turn);
        if (!this.#rows.has(change.chat) && this.#isOfScope(change.scope)) this.#request(change.chat);
        this.#touch(change.chat, (row) => ({ ...row, touchedAt: Math.max(row.touchedAt, change.at) }));
        break;
      case "turn.failed":
      case "turn.stopped":
        this.#endTurn(change.chat, change.turn);
        this.#touch(change.chat, (row) => ({ ...row, touchedAt: Math.max(row.touchedAt, change.at) }));
        break;
      default:
        return;
    }
    this.#version.value += 1;
  }

  #remove(id: string): void {
    this.#noteConcurrent(id, "removed");
    this.#runs.delete(id);
    if (this.filter.kind === "deleted" && !this.#rows.has(id)) this.#request(id);
    else this.#rows.delete(id);
  }

  #applyUpdate(update: ChatUpdate): void {
    const known = this.#rows.get(update.chat);
    this.#noteConcurrent(update.chat, "changed");
    for (const { removed } of this.#concurrent) removed.delete(update.chat);
    if (this.filter.kind === "deleted") {
      if (update.type === "chat.restored") this.#rows.delete(update.chat);
    } else if (known) this.#set(withUpdate(known, update));
    else if (!this.#fits({ ...update, purgeAt: null })) return;
    // The change does not report when the chat was last used, unless that is now.
    else if (update.type === "chat.switched") this.#set(rowOfUpdate(update));
    else if (isNew(update)) this.#set(rowOfUpdate(update));
    else this.#request(update.chat);
  }

  /** Only the end of the last started turn makes the chat idle. */
  #endTurn(chat: string, turn: string): void {
    if ((this.#runs.get(chat) ?? turn) !== turn) return;
    this.#runs.delete(chat);
    this.#touch(chat, (row) => ({ ...row, isRunning: false }));
  }

  #touch(id: string, change: (row: ChatRow) => ChatRow): void {
    const known = this.#rows.get(id);
    this.#noteConcurrent(id, "changed");
    if (known) this.#set(change(known));
  }

  #noteConcurrent(id: string, kind: keyof ConcurrentChanges): void {
    for (const each of this.#concurrent) each[kind].add(id);
  }

  #set(row: ChatRow): void {
    if (this.#fits(row)) this.#rows.set(row.id, row);
    else this.#rows.delete(row.id);
  }

  #fits({ scope, archived, tags, purgeAt }: Pick<ChatRow, "scope" | "archived" | "tags" | "purgeAt">): boolean {
    const { kind, tag } = this.filter;
    if (!this.#isOfScope(scope) || (tag != null && !tags.includes(tag))) return false;
    return kind === "deleted" ? purgeAt !== null : purgeAt === null && archived === (kind === "archived");
  }

  #isOfScope(scope: string | null): boolean {
    return this.filter.scope === null || (scope ?? "") === this.filter.scope;
  }

  /** Look up a chat that a change does not fully describe; many at once are read from the list. */
  #request(id: string): void {
    // The first page may have been read before the change. A list that is not being read will include it.
    if (!(this.#isLoaded.peek() || this.#isReading.peek()) || this.#isElsewhere(id)) return;
    this.#missing.add(id);
    if (this.#missing.size === 1) setTimeout(() => void this.#readMissing(), BATCH_TIME);
  }

  async #readMissing(): Promise<void> {
    const missing = [...this.#missing];
    this.#missing.clear();
    if (this.#ending.signal.aborted) return;
    if (missing.length > MAX_LOOKUPS || this.filter.kind === "deleted") return this.refresh();
    await Promise.all(missing.map((id) => this.#lookUp(id)));
    this.#version.value += 1;
  }

  async #lookUp(id: string): Promise<void> {
    try {
      const { signal } = this.#ending;
      const [chat, concurrent] = await this.#track(() => this.#client.chats.open(id).info({ signal }));
      this.#add([chat], concurrent);
    } catch (problem) {
      if (problem instanceof errors.ConversationUnavailable) return; // deleted meanwhile; the feed reports it
      this.#restart(problem);
    }
  }
}

/** Whether a chat was just created, not imported. */
function isNew({ type, at, chat }: ChatUpdate): boolean {
  return type === "chat.created" && at - createdAtOf(chat) < IMPORT_AGE;
}
