/** The chats of one list: pages as far as they were read, kept current by the change feed. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type ChatInfo, type Client, type Page } from "turnledger";
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
}

/** Changes during a read, whose result may be older. */
interface Meanwhile {
  readonly told: Set<string>;
  readonly gone: Set<string>;
}

/** Milliseconds in which lookups of single chats are batched, and up to how many are looked up one by one. */
const GATHERING = 50;
const LOOKED_UP = 8;
/** A chat whose id is older than the chat by this many milliseconds was imported. */
const IMPORTED = 3_600_000;

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
  readonly #meanwhile = new Set<Meanwhile>();
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
  constructor(client: Client, wanted: ChatFilter, isElsewhere: (id: string) => boolean = () => false) {
    this.#client = client;
    this.filter = wanted;
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

  /** Read until this many chats are current, or all. Returns the `asOf` of the first page, if this call read it. */
  async need(count: number): Promise<string | undefined> {
    this.#needed = count;
    if (this.#isReading.peek()) return undefined;
    this.#isReading.value = true;
    let asOf: string | undefined;
    // A refresh meanwhile starts this loop again.
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
      this.#noteMeanwhile(chat.id, "told");
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
    const [next, meanwhile] = await this.#reading(() => pages.next());
    if (generation !== this.#generation) return undefined;
    const page: Page<ChatInfo> = next.done ? { data: [], next: null } : next.value;
    this.#take(page, meanwhile);
    // Pinned chats come first, however long ago they were used.
    if (isFirst && page.next !== null && this.filter.kind === "chats") await this.#readPinned(generation);
    if (generation !== this.#generation) return undefined;
    this.#isWhole.value = this.#isFreshToTheEnd;
    this.#isLoaded.value = true;
    this.#version.value += 1;
    return isFirst ? page.asOf : undefined;
  }

  #list(more: { pinned?: boolean }) {
    const { kind, scope } = this.filter;
    const flags = kind === "deleted" ? { deleted: true } : { archived: kind === "archived" };
    return this.#client.chats.list({
      ...flags,
      ...more,
      ...(scope !== null && { scope }),
      signal: this.#ending.signal,
    });
  }

  /** A page lists all chats between two positions: others in that range are gone. */
  #take(page: Page<ChatInfo>, { told, gone }: Meanwhile): void {
    const from = this.#freshTo;
    const last = page.data.at(-1);
    const to = page.next === null || last === undefined ? null : last;
    const listed = new Set(page.data.map(({ id }) => id));
    for (const row of [...this.#rows.values()]) {
      const isBetween = (from === null || byLastUse(row, from) > 0) && (to === null || byLastUse(row, to) <= 0);
      if (isBetween && !listed.has(row.id) && !told.has(row.id)) this.#rows.delete(row.id);
    }
    this.#add(page.data, { told, gone });
    this.#isFreshToTheEnd = page.next === null;
    if (last === undefined) return;
    this.#freshTo = { id: last.id, touchedAt: last.touchedAt };
    if (this.#knownTo === null || byLastUse(this.#freshTo, this.#knownTo) > 0) this.#knownTo = this.#freshTo;
  }

  #add(chats: readonly ChatInfo[], { told, gone }: Meanwhile): void {
    for (const chat of chats) {
      if (gone.has(chat.id)) continue;
      this.#set(mergeRow(this.#rows.get(chat.id), this.#rowOf(chat), told.has(chat.id)));
    }
  }

  #rowOf(chat: ChatInfo): ChatRow {
    return rowOf(chat, this.#runs.has(chat.id) || this.#rows.get(chat.id)?.isRunning);
  }

  async #readPinned(generation: number): Promise<void> {
    const [pinned, meanwhile] = await this.#reading(() => this.#list({ pinned: true }).all());
    if (generation !== this.#generation) return;
    const listed = new Set(pinned.map(({ id }) => id));
    for (const row of [...this.#rows.values()]) {
      if (row.pinned && !listed.has(row.id) && !meanwhile.told.has(row.id)) this.#rows.delete(row.id);
    }
    this.#add(pinned, meanwhile);
  }

  async #reading<Read>(read: () => Promise<Read>): Promise<[Read, Meanwhile]> {
    const meanwhile = { told: new Set<string>(), gone: new Set<string>() };
    this.#meanwhile.add(meanwhile);
    try {
      return [await read(), meanwhile];
    } finally {
      this.#meanwhile.delete(meanwhile);
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
    this.#noteMeanwhile(id, "gone");
    this.#runs.delete(id);
    if (this.filter.kind === "deleted" && !this.#rows.has(id)) this.#request(id);
    else this.#rows.delete(id);
  }

  #applyUpdate(told: ChatUpdate): void {
    const known = this.#rows.get(told.chat);
    this.#noteMeanwhile(told.chat, "told");
    for (const { gone } of this.#meanwhile) gone.delete(told.chat);
    if (this.filter.kind === "deleted") {
      if (told.type === "chat.restored") this.#rows.delete(told.chat);
    } else if (known) this.#set(withUpdate(known, told));
    else if (!this.#fits({ ...told, purgeAt: null })) return;
    // The change does not say when the chat was last used, unless that is now.
    else if (told.type === "chat.switched") this.#set(rowOfUpdate(told));
    else if (told.type === "chat.created" && told.at - createdAtOf(told.chat) < IMPORTED) this.#set(rowOfUpdate(told));
    else this.#request(told.chat);
  }

  /** Only the end of the last started turn makes the chat idle. */
  #endTurn(chat: string, turn: string): void {
    if ((this.#runs.get(chat) ?? turn) !== turn) return;
    this.#runs.delete(chat);
    this.#touch(chat, (row) => ({ ...row, isRunning: false }));
  }

  #touch(id: string, change: (row: ChatRow) => ChatRow): void {
    const known = this.#rows.get(id);
    this.#noteMeanwhile(id, "told");
    if (known) this.#set(change(known));
  }

  #noteMeanwhile(id: string, what: keyof Meanwhile): void {
    for (const each of this.#meanwhile) each[what].add(id);
  }

  #set(row: ChatRow): void {
    if (this.#fits(row)) this.#rows.set(row.id, row);
    else this.#rows.delete(row.id);
  }

  #fits({ scope, archived, purgeAt }: Pick<ChatRow, "scope" | "archived" | "purgeAt">): boolean {
    const { kind } = this.filter;
    if (!this.#isOfScope(scope)) return false;
    return kind === "deleted" ? purgeAt !== null : purgeAt === null && archived === (kind === "archived");
  }

  #isOfScope(scope: string | null): boolean {
    return this.filter.scope === null || (scope ?? "") === this.filter.scope;
  }

  /** Look up a chat that a change does not fully describe; many at once are read from the list. */
  #request(id: string): void {
    // The first page may have been read before the change. A list that nobody reads yet will include it.
    if (!(this.#isLoaded.peek() || this.#isReading.peek()) || this.#isElsewhere(id)) return;
    this.#missing.add(id);
    if (this.#missing.size === 1) setTimeout(() => void this.#readMissing(), GATHERING);
  }

  async #readMissing(): Promise<void> {
    const sought = [...this.#missing];
    this.#missing.clear();
    if (this.#ending.signal.aborted) return;
    if (sought.length > LOOKED_UP || this.filter.kind === "deleted") return this.refresh();
    await Promise.all(sought.map((id) => this.#lookUp(id)));
    this.#version.value += 1;
  }

  async #lookUp(id: string): Promise<void> {
    try {
      const { signal } = this.#ending;
      const [chat, meanwhile] = await this.#reading(() => this.#client.chats.open(id).info({ signal }));
      this.#add([chat], meanwhile);
    } catch (problem) {
      if (problem instanceof errors.ConversationUnavailable) return; // deleted meanwhile; the feed reports it
      this.#restart(problem);
    }
  }
}
