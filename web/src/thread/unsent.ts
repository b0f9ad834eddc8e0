/** Messages whose end nobody knows: written down before they left, by a tab that may be gone since. */

import type { Input, NewChat, Unsent } from "turnledger";
import type { Outbox } from "turnledger/outbox";
import { locked } from "../session/locks";
import type { Realm } from "../session/realm";
import type { SendOptions } from "./shown-thread";

/** Milliseconds after which no server may know a message again: sent again, it could happen twice. */
const SAFE = 23 * 3_600_000;
const FIRST = "first message ";

/** A message for a chat that was not made yet. */
export interface FirstMessage {
  readonly name: string;
  /** Under which the chat is made, once. */
  readonly chatName: string;
  readonly chat: NewChat;
  readonly input: Input;
  readonly options: SendOptions;
  readonly writtenAt: number;
}

export interface Found {
  /** Send it again, and resolve when its end is known. `isOld`: it may have been answered more than a day ago. */
  resend(unsent: Unsent, isOld: boolean): Promise<void>;
  first(message: FirstMessage, isOld: boolean): Promise<void>;
}

/** Each message is held by a lock of the tab that sends it. Whoever gets the lock while the message is still there is its
 * next sender: of all tabs, one. Where there are no locks, each sends what it finds when it is loaded; the messages go
 * under their names, so that they happen once all the same. */
export class UnsentMessages {
  readonly #realm: Realm;
  readonly #outbox: Outbox;
  readonly #ending: AbortSignal;
  readonly #seen = new Set<string>();

  constructor(realm: Realm, outbox: Outbox, ending: AbortSignal) {
    this.#realm = realm;
    this.#outbox = outbox;
    this.#ending = ending;
  }

  /** Do it while no other tab sends the message of this name. */
  async holding(name: string, work: () => Promise<void>): Promise<void> {
    this.#seen.add(name);
    await locked(this.#lock(name), work);
  }

  /** Write down what is to be said in a chat before that is made. */
  write(message: Omit<FirstMessage, "writtenAt">): void {
    this.#realm.set(FIRST + message.name, JSON.stringify({ ...message, writtenAt: Date.now() }));
  }

  /** It is in the outbox by now, or its end is known. */
  erase(name: string): void {
    this.#realm.set(FIRST + name, null);
  }

  /** Find what nobody sends, now and whenever a tab has gone. */
  watch(found: Found): void {
    const look = (): void => this.#look(found);
    look();
    addEventListener("storage", look);
    this.#ending.addEventListener("abort", () => removeEventListener("storage", look));
  }

  #look(found: Found): void {
    for (const name of this.#realm.names(FIRST).map((each) => each.slice(FIRST.length))) {
      this.#take(name, async () => {
        const message = messageOf(this.#realm.get(FIRST + name));
        if (!message) return this.erase(name);
        await found.first(message, isOld(message.writtenAt));
      });
    }
    for (const { idempotencyKey: name } of this.#outbox.pending()) {
      this.#take(name, async () => {
        const unsent = this.#outbox.pending().find((each) => each.idempotencyKey === name);
        if (unsent) await found.resend(unsent, isOld(unsent.recordedAt));
      });
    }
  }

  #take(name: string, send: () => Promise<void>): void {
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    const sending = locked(this.#lock(name), send, this.#ending);
    Promise.resolve(sending).catch((problem: unknown) => {
      if (!this.#ending.aborted) throw problem;
    });
  }

  #lock(name: string): string {
    return `turnledger message ${this.#realm.name} ${name}`;
  }
}

function isOld(at: number): boolean {
  return Math.abs(Date.now() - at) > SAFE;
}

function messageOf(text: string | null): FirstMessage | null {
  try {
    const found = JSON.parse(text ?? "null") as FirstMessage | null;
    return found?.name && found.chatName ? found : null;
  } catch {
    return null;
  }
}
