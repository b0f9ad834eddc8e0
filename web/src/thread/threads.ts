/** The threads of the chats that were opened here: one of each, while it is shown or something of it is on its way. */

import { computed, signal, untracked, type ReadonlySignal, type Signal } from "@preact/signals";
import type { NewChat, Unsent } from "turnledger";
import type { Where } from "../session/router";
import type { Session } from "../session/session";
import type { ShownThread } from "./thread";
import { Tellings } from "./tab-messages";
import { Thread } from "./kept-thread";
import { UnkeptThread } from "./unkept-thread";
import { UnsentMessages, type Written } from "./outbox";

/** How many are remembered that nobody looks at. */
const REMEMBERED = 8;

export class Threads {
  readonly #session: Session;
  readonly #byPlace = new Map<string, ShownThread>();
  readonly #ending = new AbortController();
  /** Those that were begun in a tab that is gone. */
  readonly #left = new Set<ShownThread>();
  readonly unsent: UnsentMessages;
  readonly tellings: Tellings;
  /** What a new chat is to be. */
  readonly newChat: Signal<NewChat> = signal(asked());
  /** The thread that is shown. */
  readonly current: ReadonlySignal<ShownThread | null>;

  constructor(session: Session) {
    this.#session = session;
    this.unsent = new UnsentMessages(session.realm, session.outbox, this.#ending.signal);
    this.tellings = new Tellings(
      session.realm.name,
      (telling) => this.#kept(telling.chat)?.hear(telling),
      (chat) => this.#kept(chat)?.tellings() ?? [],
    );
    this.current = computed(() => {
      const where = session.place.where.value;
      return where && untracked(() => this.#at(where));
    });
    // What it finds asks for what the session has when it is whole.
    queueMicrotask(() => {
      if (session.mayRun && !this.#ending.signal.aborted) this.unsent.watch(this);
    });
  }

  /** The new chat got its id: it is found by that, too. */
  named(thread: ShownThread, id: string): void {
    this.#byPlace.set(id, thread);
    if (this.current.peek() === thread) this.#session.place.named(id);
    else if (this.#left.has(thread)) this.#reveal(id);
  }

  /** Show a chat to whoever left it behind and was about to see it: in the place of the blank one, which nobody goes
   * back to. */
  #reveal(id: string): void {
    const { place } = this.#session;
    const shown = this.current.peek();
    if (shown === null || !isBlank(shown)) return;
    place.named(id);
    place.open(id);
  }

  /** A chat has gone. */
  drop(id: string): void {
    this.#byPlace.get(id)?.close();
    for (const [place, thread] of this.#byPlace) if (thread.id.peek() === id) this.#byPlace.delete(place);
  }

  close(): void {
    this.#ending.abort();
    this.tellings.close();
    for (const thread of this.#byPlace.values()) thread.close();
    this.#byPlace.clear();
  }

  /** A tab has left a message behind. */
  async resend(unsent: Unsent, isOld: boolean): Promise<void> {
    const { chat } = JSON.parse(unsent.body) as { chat?: string };
    // None that this page has written.
    if (chat === undefined) return this.#session.outbox.forget(unsent.idempotencyKey);
    const thread = this.#at({ kind: "chat", id: chat });
    if (thread instanceof Thread) await thread.resend(unsent, isOld);
  }

  /** A tab has left a message behind that it did not ask for. */
  async ask(written: Written, isOld: boolean): Promise<void> {
    const { id, name, facts, wasMade } = written.chat;
    const place = `left ${name}`;
    const found = id ? this.#at({ kind: "chat", id }) : this.#byPlace.get(place);
    const thread = found ?? new Thread(this.#session, null, name, facts);
    if (!found) {
      this.#byPlace.set(place, thread);
      this.#left.add(thread);
    }
    if (id && wasMade) this.#reveal(id);
    if (thread instanceof Thread) await thread.ask(written, isOld);
  }

  #kept(id: string): Thread | null {
    const thread = this.#byPlace.get(id);
    return thread instanceof Thread ? thread : null;
  }

  #at(where: Where): ShownThread {
    const place = nameOf(where);
    const found = this.#byPlace.get(place);
    const thread = found ?? this.#make(where);
    this.#byPlace.delete(place); // and put it behind the others: it was looked at last
    this.#byPlace.set(place, thread);
    this.#tidy(thread);
    return thread;
  }

  #make(where: Where): ShownThread {
    if (where.kind === "unkept") return new UnkeptThread(this.#session);
    return new Thread(this.#session, where.kind === "chat" ? where.id : null);
  }

  /** What is not kept is gone when it is left. */
  #forgetUnkept(): void {
    const where = this.#session.place.where.peek();
    for (const [place, thread] of this.#byPlace) {
      if (thread.isKept || (where && place === nameOf(where))) continue;
      this.#byPlace.delete(place);
      thread.close();
    }
  }

  #tidy(shown: ShownThread): void {
    this.#forgetUnkept();
    for (const [place, thread] of this.#byPlace) {
      if (this.#byPlace.size <= REMEMBERED) break;
      // What failed may be read there when somebody comes back.
      const isNeeded = thread.failed.peek()?.isHere || thread.running.peek().some((each) => each.isHere);
      if (thread === shown || isNeeded) continue;
      this.#byPlace.delete(place);
      if (![...this.#byPlace.values()].includes(thread)) thread.close(); // it may be known by its id, too
    }
  }
}

function nameOf(where: Where): string {
  return where.kind === "chat" ? where.id : `${where.kind} ${where.number}`;
}

/** Whether nothing was said there yet. */
function isBlank({ id, running, failed }: ShownThread): boolean {
  return id.peek() === null && running.peek().length === 0 && failed.peek() === null;
}

/** What the address asks new chats to be. */
function asked(): NewChat {
  const scope = new URLSearchParams(location.search).get("scope");
  return scope ? { scope } : {};
}
