/** Messages with an unknown outcome: stored before they are sent, by a tab that may have closed since. */

import type { Input, NewChat, Unsent } from "turnledger";
import type { Outbox } from "turnledger/outbox";
import { withLock } from "../browser/locks";
import type { StorageScope } from "../session/storage-scope";
import type { SendOptions } from "./thread";

/** Milliseconds after which no server may know a message again: sent again, it could happen twice. */
const SAFE = 23 * 3_600_000;
/** Milliseconds before it is looked who sends what another tab has written down. */
const LATER = 1_000;
const WRITTEN = "message ";
/** Milliseconds until one tab surely sees what another one has removed: locks are faster than storages. */
const SEEN = 1_000;

/** A message that was not asked for yet: its chat is not made, or another one goes before it. */
export interface WrittenMessage {
  readonly name: string;
  /** The chat, or under which name it is made, and as what. `wasMade`: it had no id when this was written. */
  readonly chat: {
    readonly id: string | null;
    readonly name: string;
    readonly facts: NewChat;
    readonly wasMade?: boolean;
  };
  /** What is said; and of which turn, if not behind the last one. */
  readonly said: { readonly verb: "send" | "edit" | "regenerate"; readonly turn?: string; readonly input: Input };
  readonly options: SendOptions;
  readonly writtenAt: number;
}

export interface OutboxHandler {
  /** Send it again, and resolve when its end is known. `isOld`: it may have been answered more than a day ago. */
  resend(unsent: Unsent, isOld: boolean): Promise<void>;
  ask(written: WrittenMessage, isOld: boolean): Promise<void>;
}

/** Each message is held by a lock of the tab that sends it. Whoever gets the lock while the message is still there is
 * its next sender: of all tabs, one. Where there are no locks, each sends what it finds when it is loaded; the messages
 * go under their names, so that they happen once all the same. */
export class TabOutbox {
  readonly #storage: StorageScope;
  readonly #outbox: Outbox;
  readonly #ending: AbortSignal;
  /** Those that this tab knows of. */
  readonly #seen = new Set<string>();
  /** Those that were left behind, and are sent by this tab. */
  readonly #held = new Set<string>();
  #ready: Promise<unknown> = Promise.resolve();
  /** How many of those that were found are still to be taken or left. */
  #unclear = 0;
  #found: OutboxHandler | null = null;
  #last = 0;

  constructor(storage: StorageScope, outbox: Outbox, ending: AbortSignal) {
    this.#storage = storage;
    this.#outbox = outbox;
    this.#ending = ending;
  }

  /** Resolves when it is known which of those that were found are sent by this tab: they are on their way by then. */
  get ready(): Promise<unknown> {
    return this.#ready;
  }

  /** Do it while no other tab sends the message of this name. */
  async whileHeld(name: string, work: () => Promise<void>): Promise<void> {
    this.#seen.add(name);
    if (this.#held.has(name)) return work();
    await withLock(this.#lock(name), {}, work);
  }

  /** Do what sends a new message, behind those that were left before it was written, also if that was not noticed. */
  async sendInOrder(name: string, work: () => Promise<void>): Promise<void> {
    this.#seen.add(name);
    if (this.#found) this.#look(this.#found, Date.now() - LATER);
    if (this.#unclear === 0) return work();
    // Held meanwhile, so that no other tab takes it for one that was left.
    await withLock(this.#lock(name), {}, async () => {
      this.#held.add(name);
      await this.#ready;
      await work();
    });
  }

  /** Write a message down before anything of it is asked for. */
  write(message: Omit<WrittenMessage, "writtenAt">): WrittenMessage {
    // No two at the same time: they are sent in this order.
    this.#last = Math.max(Date.now(), this.#last + 1);
    const written = { ...message, writtenAt: this.#last };
    this.#storage.set(WRITTEN + message.name, JSON.stringify(written));
    return written;
  }

  /** The chat that is made under this name has this id: what waits for it goes there, behind what was asked there. */
  chatCreated(name: string, id: string): void {
    for (const each of this.#written()) {
      const isForIt = each.chat.id === null && each.chat.name === name;
      const chat = { ...each.chat, id, wasMade: true };
      if (isForIt) this.#storage.set(WRITTEN + each.name, JSON.stringify({ ...each, chat }));
    }
  }

  /** It is in the outbox by now, or its end is known. */
  erase(name: string): void {
    this.#storage.set(WRITTEN + name, null);
  }

  /** Find what nobody sends, now and whenever a tab has gone. */
  watch(found: OutboxHandler): void {
    this.#found = found;
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Whoever writes one down is about to hold it, and shall not find that another tab was faster.
    const look = (): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        this.#look(found);
      }, LATER);
    };
    this.#look(found);
    if (!("locks" in navigator)) return; // nobody could tell whether its own tab is still there
    addEventListener("storage", look);
    this.#ending.addEventListener("abort", () => {
      removeEventListener("storage", look);
      clearTimeout(timer);
    });
  }

  /** Take those that were written before a time, and that nobody sends. */
  #look(found: OutboxHandler, before = Infinity): void {
    const pending = this.#outbox.pending();
    // Those that were asked for go first: the others waited for them.
    for (const { idempotencyKey: name, recordedAt } of pending) {
      if (recordedAt > before) continue;
      this.#take(name, async () => {
        const unsent = this.#outbox.pending().find((each) => each.idempotencyKey === name);
        if (unsent) await found.resend(unsent, isOld(unsent.recordedAt));
      });
    }
    for (const message of this.#written()) {
      const { name } = message;
      if (message.writtenAt > before) continue;
      this.#take(name, async () => {
        if (this.#storage.get(WRITTEN + name) !== null) await found.ask(message, isOld(message.writtenAt));
      });
    }
  }

  /** The first written first. */
  #written(): WrittenMessage[] {
    const found = this.#storage.names(WRITTEN).flatMap((name) => writtenOf(this.#storage.get(name)));
    return found.sort((one, other) => one.writtenAt - other.writtenAt);
  }

  #take(name: string, send: () => Promise<void>): void {
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    const sending = async (): Promise<void> => {
      this.#held.add(name);
      await send();
    };
    this.#clarify((isKnown) => {
      const begin = (lock: Lock | null): Promise<void> | void => {
        const begun = lock ? sending() : undefined;
        isKnown();
        return begun;
      };
      const ended = this.#inTurn(name, begin, sending);
      ended.catch((problem: unknown) => {
        if (!this.#ending.aborted) throw problem;
      });
    });
  }

  /** Have it waited for until it is known whether this tab sends a message. */
  #clarify(begin: (isKnown: () => void) => void): void {
    this.#unclear += 1;
    const known = new Promise<void>((resolve) => {
      begin(() => {
        this.#unclear -= 1;
        resolve();
      });
    });
    this.#ready = Promise.all([this.#ready, known]);
  }

  /** Do the first if nobody holds it; else the second, as soon as nobody does. */
  async #inTurn(
    name: string,
    first: (lock: Lock | null) => Promise<void> | void,
    second: () => Promise<void>,
  ): Promise<void> {
    let isFree = false;
    await withLock(this.#lock(name), { ifAvailable: true }, (lock) => {
      isFree = lock !== null;
      return first(lock);
    });
    if (isFree) return;
    await withLock(this.#lock(name), { signal: this.#ending }, async () => {
      let begun = (): void => {};
      this.#clarify((isKnown) => (begun = isKnown));
      await new Promise((resolve) => setTimeout(resolve, SEEN));
      const ended = this.#ending.aborted ? undefined : second();
      begun();
      await ended;
    });
  }

  #lock(name: string): string {
    return `turnledger message ${this.#storage.name} ${name}`;
  }
}

function isOld(at: number): boolean {
  return Math.abs(Date.now() - at) > SAFE;
}

function writtenOf(text: string | null): WrittenMessage[] {
  try {
    const found = JSON.parse(text ?? "null") as WrittenMessage | null;
    return found?.name && found.chat && found.said ? [found] : [];
  } catch {
    return [];
  }
}
