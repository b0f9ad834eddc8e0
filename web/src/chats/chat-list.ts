/** The chats of the user: the list, the archive, and the deleted ones that can be restored. */

import { computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { Change, ChatInfo } from "turnledger";
import type { Session } from "../session/session";
import { isNewChat } from "./open-chat";
import type { ChatRow } from "./chat-row";
import { ScopeFilter, scopeFromAddress } from "./scope-filter";
import { TagFilter } from "./tag-filter";
import { ChatPages, type ChatListKind } from "./live-chat-pages";

/** How the list shows a chat until the server has answered. */
export type OptimisticChange = Partial<Pick<ChatRow, "title" | "pinned" | "archived">> & { readonly isGone?: boolean };

export class ChatList {
  readonly scopes: ScopeFilter;
  readonly tags: TagFilter;
  readonly #session: Session;
  readonly #main: Signal<ChatPages>;
  readonly #otherList = signal<ChatPages | null>(null);
  readonly #optimistic = signal<ReadonlyMap<string, OptimisticChange>>(new Map());
  readonly #unseen = signal<ReadonlySet<string>>(new Set());
  readonly #cleanups: (() => void)[] = [];
  readonly #ending = new AbortController();
  #started: Promise<void> | null = null;

  constructor(session: Session) {
    this.#session = session;
    this.scopes = new ScopeFilter(session.storage, session.me.chatScope ?? scopeFromAddress());
    this.tags = new TagFilter(session.client);
    this.#main = signal(this.#pagesOf("chats"));
    this.#cleanups.push(
      session.feed.listen((change) => this.#follow(change)),
      // Read failed pages again when the server is back.
      session.feed.connection.subscribe((connection) => {
        if (connection === "live" && this.problem.peek() !== null) void this.retry();
      }),
      effect(() => this.scopes.addKnown(this.#main.value.rows.value.map(({ scope }) => scope))),
      effect(() => this.tags.note(this.#shown.value.rows.value)),
    );
  }

  readonly kind: ReadonlySignal<ChatListKind> = computed(() => this.#shown.value.filter.kind);
  readonly #shown: ReadonlySignal<ChatPages> = computed(() => this.#otherList.value ?? this.#main.value);

  /** The known chats: pinned ones first, then by last use. */
  readonly rows: ReadonlySignal<readonly ChatRow[]> = computed(() => {
    const pages = this.#shown.value;
    const rows = this.#withOptimistic(pages.rows.value);
    return pages.filter.kind === "chats"
      ? [...rows].sort((one, other) => Number(other.pinned) - Number(one.pinned))
      : rows;
  });

  readonly isWhole: ReadonlySignal<boolean> = computed(() => this.#shown.value.isWhole.value);
  readonly isLoaded: ReadonlySignal<boolean> = computed(() => this.#shown.value.isLoaded.value);
  readonly problem: ReadonlySignal<unknown> = computed(() => this.#shown.value.problem.value);

  /** Whether the main list has any chats; null if unknown. */
  readonly hasAny: ReadonlySignal<boolean | null> = computed(() => {
    const main = this.#main.value;
    if (main.filter.tag != null) return true; // there were chats with tags
    return main.rows.value.length > 0 || (main.isWhole.value ? false : null);
  });

  /** Chats with an answer that the user has not seen here. */
  get unseen(): ReadonlySignal<ReadonlySet<string>> {
    return this.#unseen;
  }

  /** Read the first page, and open the most recent chat if the address names none. Runs once. */
  start(): Promise<void> {
    return (this.#started ??= this.#start());
  }

  /** Read until this many are known, or all. */
  async need(count: number): Promise<void> {
    const pages = this.#shown.peek();
    if (this.#started !== null && pages.problem.peek() === null) await pages.need(count);
  }

  /** Read failed pages again. */
  async retry(): Promise<void> {
    await this.#shown.peek().refresh();
  }

  show(kind: ChatListKind): void {
    this.#otherList.peek()?.close();
    const isOnMain = (id: string): boolean => this.#main.peek().row(id) !== undefined;
    this.#otherList.value = kind === "chats" ? null : this.#pagesOf(kind, isOnMain);
    void this.need(1);
  }

  /** Show the chats of another scope; null: all. */
  chooseScope(scope: string | null): void {
    if (this.scopes.chosen.peek() === scope) return;
    this.scopes.choose(scope);
    this.#filter();
    // An empty chat belongs to the selected scope.
    if (isNewChat(this.#session)) this.#session.router.openNew();
  }

  /** Show only chats with a tag; null: all. */
  chooseTag(tag: string | null): void {
    if (this.tags.chosen.peek() === tag) return;
    this.tags.choose(tag);
    this.#filter();
  }

  /** Read the tags of all chats, once. */
  readAllTags(): Promise<void> {
    return this.tags.readAll(this.scopes.fixed, this.#ending.signal);
  }

  /** Read the lists again: the filters have changed. */
  #filter(): void {
    this.#main.peek().close();
    this.#main.value = this.#pagesOf("chats");
    this.show(this.kind.peek());
    if (this.#otherList.peek() !== null) void this.#main.peek().need(1);
  }

  #pagesOf(kind: ChatListKind, isElsewhere?: (id: string) => boolean): ChatPages {
    const filter = { kind, scope: this.scopes.chosen.peek(), tag: this.tags.chosen.peek() };
    return new ChatPages(this.#session.client, filter, isElsewhere);
  }

  row(id: string): ChatRow | undefined {
    const row = this.#main.value.row(id) ?? this.#otherList.value?.row(id);
    void this.rows.value; // subscribe the caller to changes
    const change = this.#optimistic.value.get(id);
    return row && change ? { ...row, ...change } : row;
  }

  put(...chats: readonly ChatInfo[]): void {
    this.#main.peek().put(...chats);
    this.#otherList.peek()?.put(...chats);
  }

  drop(id: string): void {
    this.#main.peek().drop(id);
    this.#otherList.peek()?.drop(id);
  }

  /** Show a chat with this change until the promise settles, whatever its outcome. */
  async showOptimistically<Done>(id: string, change: OptimisticChange, done: Promise<Done>): Promise<Done> {
    const own = { ...this.#optimistic.peek().get(id), ...change };
    this.#optimistic.value = new Map(this.#optimistic.peek()).set(id, own);
    try {
      return await done;
    } finally {
      const changes = new Map(this.#optimistic.peek());
      if (changes.get(id) === own) changes.delete(id); // otherwise a later change replaced it
      this.#optimistic.value = changes;
    }
  }

  markSeen(id: string | null): void {
    const unseen = this.#unseen.peek();
    if (id !== null && unseen.has(id)) this.#unseen.value = new Set([...unseen].filter((each) => each !== id));
  }

  close(): void {
    this.#ending.abort();
    for (const close of this.#cleanups) close();
    this.#main.peek().close();
    this.#otherList.peek()?.close();
  }

  async #start(): Promise<void> {
    const { feed, router, keeps, lastChat } = this.#session;
    const main = this.#main.peek();
    const asOf = await main.need(1);
    feed.start(asOf);
    // Never another program's chat, however recent: the user would write into it unawares.
    const isListed = lastChat !== null && main.row(lastChat) !== undefined;
    if (router.route.peek() === null) router.start(keeps && isListed ? lastChat : null);
  }

  #withOptimistic(rows: readonly ChatRow[]): readonly ChatRow[] {
    const changes = this.#optimistic.value;
    if (changes.size === 0) return rows;
    const isArchive = this.kind.value === "archived";
    return rows
      .map((row) => ({ ...row, ...changes.get(row.id) }) as ChatRow & OptimisticChange)
      .filter(
        (row) => !row.isGone && (!changes.has(row.id) || this.kind.value === "deleted" || row.archived === isArchive),
      );
  }

  #follow(change: Change): void {
    this.#main.peek().applyChange(change);
    this.#otherList.peek()?.applyChange(change);
    if ("scope" in change) this.scopes.addKnown([change.scope]);
    if ("tags" in change) this.tags.note([{ id: change.chat, tags: change.tags }]);
    if (change.type === "chat.deleted") this.tags.note([{ id: change.chat, tags: [] }]);
    if (change.type === "turn.committed" && !this.#isVisible(change.chat)) {
      this.#unseen.value = new Set(this.#unseen.peek()).add(change.chat);
    }
  }

  #isVisible(id: string): boolean {
    return this.#session.threads.current.peek()?.id.peek() === id && document.visibilityState !== "hidden";
  }
}
