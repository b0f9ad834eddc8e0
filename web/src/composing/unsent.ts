/** Messages that left the composer and whose end is not known: each is written down first, so that a page that is
 * closed before its chat is made, or before anybody knows which models there are, loses nothing. */

import type { OnBusy } from "turnledger";
import type { Realm } from "../session/realm";

/** A message as it was sent. */
export interface Message {
  /** Names the request: however often it is sent, it happens once. */
  readonly name: string;
  readonly text: string;
  /** Null: whichever is there. */
  readonly model: string | null;
  readonly onBusy: OnBusy;
}

interface Facts {
  /** The chat it is for; null: one that was not made yet, under the name `birth`. */
  readonly chat: string | null;
  readonly birth: string | null;
  /** The tab that sends it. */
  readonly tab: string;
}

export interface Unsent extends Message, Facts {
  readonly at: number;
}

const PREFIX = "unsent:";

export class UnsentMessages {
  readonly #realm: Realm;
  #last = 0;

  constructor(realm: Realm) {
    this.#realm = realm;
  }

  /** Write one down. Returns whether that worked: there may be no room. */
  record(message: Message & Facts): boolean {
    this.#last = Math.max(Date.now(), this.#last + 1);
    return this.#realm.set(PREFIX + message.name, JSON.stringify({ ...message, at: this.#last }));
  }

  /** Its chat is made, or another tab sends it. */
  change(name: string, facts: Partial<Facts>): void {
    const found = this.#read(name);
    if (found) this.#realm.set(PREFIX + name, JSON.stringify({ ...found, ...facts }));
  }

  forget(name: string): void {
    this.#realm.set(PREFIX + name, null);
  }

  /** All that are there, the first sent first. */
  all(): Unsent[] {
    const found = this.#realm.names(PREFIX).flatMap((name) => this.#read(name.slice(PREFIX.length)) ?? []);
    return found.sort((one, other) => one.at - other.at);
  }

  #read(name: string): Unsent | null {
    try {
      const found = JSON.parse(this.#realm.get(PREFIX + name) ?? "null") as Unsent | null;
      return typeof found?.text === "string" ? found : null;
    } catch {
      return null;
    }
  }
}
