/** Messages with an unknown outcome: stored before they are sent, by a tab that may have closed since. */

import type { Input, NewChat, UnsentMessage } from "turnledger";
import type { Outbox } from "turnledger/outbox";
import { withLock } from "../browser/locks";
import type { StorageScope } from "../session/storage-scope";
import type { SendOptions } from "./thread";

/** Milliseconds after which a server may have forgotten a message: sent again, it could run twice. */
const MAX_RESEND_AGE = 23 * 3_600_000;
/** Milliseconds before this tab checks whether another tab sends a message that it stored. */
const CHECK_DELAY = 1_000;
const PREFIX = "message ";
/** Milliseconds until removals by another tab are visible here: locks are faster than storage. */
const STORAGE_DELAY = 1_000;

/** A message that was not sent yet: its chat does not exist yet, or another message is sent first. */
export interface WrittenMessage {
  readonly name: string;
  /** The chat, or the key and the options it is created with. `wasMade`: it had no id when this was stored. */
  readonly chat: {
    readonly id: string | null;
    readonly name: string;
    readonly facts: NewChat;
    readonly wasMade?: boolean;
  };
  /** The input, and the turn that it replaces, if any. */
  readonly said: { readonly verb: "send" | "edit" | "regenerate"; readonly turn?: string; readonly input: Input };
  readonly options: SendOptions;
  readonly writtenAt: number;
}

interface OutboxHandler {
  /** Send it again, and resolve when its outcome is known. `isOld`: it may have been answered more than a day ago. */
  resend(unsent: UnsentMessage, isOld: boolean): Promise<void>;
  sendStored(written: WrittenMessage, isOld: boolean): Promise<void>;
}

/** The tab that sends a message holds its lock. The next tab that gets the lock while the message is still stored
 * becomes its sender: exactly one of all tabs. Without locks, each tab sends the messages that it finds when it loads;
 * idempotency keys make sure that each message still runs once. */
export class TabOutbox {
  readonly #storage: StorageScope;
  readonly #outbox: Outbox;
  readonly #ending: AbortSignal;
  /** Messages known to this tab. */
  readonly #seen = new Set<string>();
  /** Messages of closed tabs that this tab sends. */
  readonly #held = new Set<string>();
  #ready: Promise<unknown> = Promise.resolve();
  /** How many found messages are not decided yet. */
  #undecided = 0;
  #found: OutboxHandler | null = null;
  #last = 0;

  constructor(storage: StorageScope, outbox: Outbox, ending: AbortSignal) {
    this.#storage = storage;
    this.#outbox = outbox;
    this.#ending = ending;
  }

  /** Resolves when it is decided which of the found messages this tab sends; they are pending by then. */
  get ready(): Promise<unknown> {
    return this.#ready;
  }

  /** Run the work while no other tab sends the message of this name. */
  async whileHeld(name: string, work: () => Promise<void>): Promise<void> {
    this.#seen.add(name);
    if (this.#held.has(name)) return work();
    await withLock(this.#lock(name), {}, work);
  }

  /** Send a new message after those that closed tabs left before it, also if no event announced them. */
  async sendInOrder(name: string, work: () => Promise<void>): Promise<void> {
    this.#seen.add(name);
    if (this.#found) this.#findAbandoned(this.#found, Date.now() - CHECK_DELAY);
    if (this.#undecided === 0) return work();
    // Hold its lock meanwhile, so that no other tab takes it for an abandoned one.
    await withLock(this.#lock(name), {}, async () => {
      this.#held.add(name);
      await this.#ready;
      await work();
    });
  }

  write(message: Omit<WrittenMessage, "writtenAt">): WrittenMessage {
    // Times are unique: messages are sent in this order.
    this.#last = Math.max(Date.now(), this.#last + 1);
    const written = { ...message, writtenAt: this.#last };
    this.#storage.set(PREFIX + message.name, JSON.stringify(written));
    return written;
  }

  /** A chat has its id now: messages that wait for it go there, after those already sent. */
  chatCreated(name: string, id: string): void {
    for (const each of this.#written()) {
      const isForIt = each.chat.id === null && each.chat.name === name;
      const chat = { ...each.chat, id, wasMade: true };
      if (isForIt) this.#storage.set(PREFIX + each.name, JSON.stringify({ ...each, chat }));
    }
  }

  /** Remove a message: it is in the client's outbox, or its outcome is known. */
  erase(name: string): void {
    this.#storage.set(PREFIX + name, null);
  }

  /** Find abandoned messages, now and whenever a tab has closed. */
  watch(found: OutboxHandler): void {
    this.#found = found;
    let timer: ReturnType<typeof setTimeout> | undefined;
    // A tab that has stored a message is about to lock it; do not overtake it.
    const check = (): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        this.#findAbandoned(found);
      }, CHECK_DELAY);
    };
    this.#findAbandoned(found);
    if (!("locks" in navigator)) return; // without locks, no tab knows whether another is still there
    addEventListener("storage", check);
    this.#ending.addEventListener("abort", () => {
      removeEventListener("storage", check);
      clearTimeout(timer);
    });
  }

  /** Take the abandoned messages that were stored before a time. */
  #findAbandoned(found: OutboxHandler, before = Infinity): void {
    const pending = this.#outbox.pending();
    // Sent ones go first: the others waited for them.
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
        if (this.#storage.get(PREFIX + name) !== null) await found.sendStored(message, isOld(message.writtenAt));
      });
    }
  }

  #written(): WrittenMessage[] {
    const found = this.#storage.names(PREFIX).flatMap((name) => writtenOf(this.#storage.get(name)));
    return found.sort((one, other) => one.writtenAt - other.writtenAt);
  }

  #take(name: string, send: () => Promise<void>): void {
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    const sending = async (): Promise<void> => {
      this.#held.add(name);
      await send();
    };
    this.#decide((onDecided) => {
      const begin = (lock: Lock | null): Promise<void> | void => {
        const begun = lock ? sending() : undefined;
        onDecided();
        return begun;
      };
      const ended = this.#inTurn(name, begin, sending);
      ended.catch((problem: unknown) => {
        if (!this.#ending.aborted) throw problem;
      });
    });
  }

  /** Make `ready` wait until it is decided whether this tab sends a message. */
  #decide(begin: (onDecided: () => void) => void): void {
    this.#undecided += 1;
    const known = new Promise<void>((resolve) => {
      begin(() => {
        this.#undecided -= 1;
        resolve();
      });
    });
    this.#ready = Promise.all([this.#ready, known]);
  }

  /** Run the first if the lock is free; otherwise the second, as soon as it is. */
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
      this.#decide((onDecided) => (begun = onDecided));
      await new Promise((resolve) => setTimeout(resolve, STORAGE_DELAY));
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
  return Math.abs(Date.now() - at) > MAX_RESEND_AGE;
}

function writtenOf(text: string | null): WrittenMessage[] {
  try {
    const found = JSON.parse(text ?? "null") as WrittenMessage | null;
    return found?.name && found.chat && found.said ? [found] : [];
  } catch {
    return [];
  }
}
