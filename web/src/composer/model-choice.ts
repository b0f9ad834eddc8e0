/** The model that answers in a chat: the one chosen there, else the last that answered, else the last chosen anywhere.
 * */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { Session } from "../session/session";
import type { Thread } from "../thread/thread";

export class ModelChoice {
  /** All that there are to choose from. */
  readonly names: ReadonlySignal<readonly string[]>;
  /** Null: nobody knows yet, or there is none. */
  readonly name: ReadonlySignal<string | null>;
  /** The one that was chosen before and is there no more; null: there is no such thing to say. */
  readonly gone: ReadonlySignal<string | null>;
  readonly #session: Session;
  readonly #picked = signal<string | null>(null);

  constructor(session: Session, thread: Thread) {
    this.#session = session;
    this.names = computed(() => session.models.value.map(({ id }) => id));
    this.name = computed(() => {
      // What an upstream calls itself may be another name than it has here: then nothing is known of it.
      const answered = thread.turns.value.at(-1)?.details["model"];
      const wanted = [this.#picked.value, answered].find((each) => this.names.value.includes(each as string));
      return (wanted as string | undefined) ?? session.model.value;
    });
    const remembered = session.storage.get("model");
    this.gone = computed(() => {
      if (this.#picked.value !== null || remembered === null || this.names.value.length === 0) return null;
      return this.names.value.includes(remembered) ? null : remembered;
    });
  }

  /** Go on with who answers instead of one that is gone: there is nothing more to say of that. */
  accept(): void {
    const name = this.name.peek();
    if (this.gone.peek() !== null && name !== null) this.choose(name);
  }

  /** Have this one answer from now on, here and in new chats. */
  choose(name: string): void {
    this.#picked.value = name;
    this.#session.choose(name);
  }
}
