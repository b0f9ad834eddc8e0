/** The open threads: one per chat, while it is shown or has pending turns. */

import { computed, signal, untracked, type ReadonlySignal, type Signal } from "@preact/signals";
import type { NewChat, UnsentMessage } from "turnledger";
import type { Route } from "../session/router";
import type { Session } from "../session/session";
import type { Thread } from "./thread";
import { TabMessages } from "./tab-messages";
import { KeptThread } from "./kept-thread";
import { UnkeptThread } from "./unkept-thread";
import { TabOutbox, type WrittenMessage } from "./outbox";

/** How many hidden threads are kept. */
const MAX_HIDDEN = 8;

export class Threads {
  readonly #session: Session;
  readonly #byKey = new Map<string, Thread>();
  readonly #ending = new AbortController();
  /** Threads of chats that a closed tab began. */
  readonly #orphaned = new Set<Thread>();
  readonly outbox: TabOutbox;
  readonly tabMessages: TabMessages;
  /** The options of a new chat. */
  readonly newChat: Signal<NewChat> = signal(newChatFromAddress());
  readonly current: ReadonlySignal<Thread | null>;

  constructor(session: Session) {
    this.#session = session;
    this.outbox = new TabOutbox(session.storage, session.outbox, this.#ending.signal);
    this.tabMessages = new TabMessages(
      session.storage.name,
      (message) => this.#kept(message.chat)?.receive(message),
      (chat) => this.#kept(chat)?.tabMessages() ?? [],
    );
    this.current = computed(() => {
      const route = session.router.route.value;
      return route && untracked(() => this.#at(route));
    });
    // The handlers need the complete session.
    queueMicrotask(() => {
      if (session.mayRun && !this.#ending.signal.aborted) this.outbox.watch(this);
    });
  }

  /** A new chat has its id: find it by that, too. */
  chatCreated(thread: Thread, id: string): void {
    this.#byKey.set(id, thread);
    if (this.current.peek() === thread) this.#session.router.chatCreated(id);
    else if (this.#orphaned.has(thread)) this.#reveal(id);
  }

  /** Show the chat of a closed tab in place of an empty one, if the user was about to see it. */
  #reveal(id: string): void {
    const { router } = this.#session;
    const shown = this.current.peek();
    if (shown === null || !isBlank(shown)) return;
    router.chatCreated(id);
    router.open(id);
  }

  close(): void {
    this.#ending.abort();
    this.tabMessages.close();
    for (const thread of this.#byKey.values()) thread.close();
    this.#byKey.clear();
  }

  /** A closed tab had sent a message. */
  async resend(unsent: UnsentMessage, isOld: boolean): Promise<void> {
    const { chat } = JSON.parse(unsent.body) as { chat?: string };
    // Not written by this page.
    if (chat === undefined) return this.#session.outbox.forget(unsent.idempotencyKey);
    const thread = this.#at({ kind: "chat", id: chat });
    if (thread instanceof KeptThread) await thread.resend(unsent, isOld);
  }

  /** A closed tab had stored a message and not sent it. */
  async sendStored(written: WrittenMessage, isOld: boolean): Promise<void> {
    const { id, name, facts, wasMade } = written.chat;
    const key = `left ${name}`;
    const found = id ? this.#at({ kind: "chat", id }) : this.#byKey.get(key);
    const thread = found ?? new KeptThread(this.#session, null, name, facts);
    if (!found) {
      this.#byKey.set(key, thread);
      this.#orphaned.add(thread);
    }
    if (id && wasMade) this.#reveal(id);
    if (thread instanceof KeptThread) await thread.sendStored(written, isOld);
  }

  #kept(id: string): KeptThread | null {
    const thread = this.#byKey.get(id);
    return thread instanceof KeptThread ? thread : null;
  }

  #at(route: Route): Thread {
    const key = routeName(route);
    const found = this.#byKey.get(key);
    const thread = found ?? this.#make(route);
    this.#byKey.delete(key); // most recently used last
    this.#byKey.set(key, thread);
    this.#tidy(thread);
    return thread;
  }

  #make(route: Route): Thread {
    if (route.kind === "unkept") return new UnkeptThread(this.#session);
    return new KeptThread(this.#session, route.kind === "chat" ? route.id : null);
  }

  /** Forget unkept threads that are not shown. */
  #forgetUnkept(): void {
    const route = this.#session.router.route.peek();
    for (const [key, thread] of this.#byKey) {
      if (thread.isKept || (route && key === routeName(route))) continue;
      this.#byKey.delete(key);
      thread.close();
    }
  }

  #tidy(shown: Thread): void {
    this.#forgetUnkept();
    for (const [key, thread] of this.#byKey) {
      if (this.#byKey.size <= MAX_HIDDEN) break;
      // A failure stays readable until the user comes back.
      const isNeeded = thread.failed.peek()?.isLocal || thread.pending.peek().some((each) => each.isLocal);
      if (thread === shown || isNeeded) continue;
      this.#byKey.delete(key);
      if (![...this.#byKey.values()].includes(thread)) thread.close(); // it may also be stored under its id
    }
  }
}

function routeName(route: Route): string {
  return route.kind === "chat" ? route.id : `${route.kind} ${route.number}`;
}

function isBlank({ id, pending, failed }: Thread): boolean {
  return id.peek() === null && pending.peek().length === 0 && failed.peek() === null;
}

/** The options of new chats from the address. */
function newChatFromAddress(): NewChat {
  const scope = new URLSearchParams(location.search).get("scope");
  return scope ? { scope } : {};
}
