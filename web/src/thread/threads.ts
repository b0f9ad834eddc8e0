/** The threads of the chats that were opened here: one of each, while it is shown or something of it is on its way. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { Session } from "../session/session";
import { Thread } from "./thread";

/** How many are remembered that nobody looks at. */
const REMEMBERED = 8;

export class Threads {
  readonly #session: Session;
  readonly #byPlace = new Map<string, Thread>();
  /** The thread that is shown. */
  readonly current: ReadonlySignal<Thread | null>;

  constructor(session: Session) {
    this.#session = session;
    this.current = computed(() => {
      const where = session.place.where.value;
      return where && this.#at(where.kind === "chat" ? where.id : `new ${where.number}`, where.kind === "chat" ? where.id : null);
    });
  }

  /** The new chat got its id: it is found by that, too. */
  named(thread: Thread, id: string): void {
    this.#byPlace.set(id, thread);
    if (this.current.peek() === thread) this.#session.place.named(id);
  }

  /** A chat has gone. */
  drop(id: string): void {
    this.#byPlace.get(id)?.close();
    for (const [place, thread] of this.#byPlace) if (thread.id.peek() === id) this.#byPlace.delete(place);
  }

  close(): void {
    for (const thread of this.#byPlace.values()) thread.close();
    this.#byPlace.clear();
  }

  #at(place: string, id: string | null): Thread {
    const found = this.#byPlace.get(place);
    if (found) {
      this.#byPlace.delete(place); // and put it behind the others: it was looked at last
      this.#byPlace.set(place, found);
      return found;
    }
    const thread = new Thread(this.#session, id);
    this.#byPlace.set(place, thread);
    for (const [other, old] of this.#byPlace) {
      if (this.#byPlace.size <= REMEMBERED) break;
      if (old === thread || old.isBusy) continue;
      this.#byPlace.delete(other);
      old.close();
    }
    return thread;
  }
}
