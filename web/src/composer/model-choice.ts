/** The model that answers in a chat: the one chosen there, else the last that answered, else the last chosen anywhere.
 * */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { Session } from "../session/session";
import type { Thread } from "../thread/thread";

export class ModelChoice {
  readonly names: ReadonlySignal<readonly string[]>;
  /** Null if not known yet, or if there is none. */
  readonly name: ReadonlySignal<string | null>;
  /** The remembered model, if the server no longer has it; null otherwise. */
  readonly gone: ReadonlySignal<string | null>;
  readonly #session: Session;
  readonly #picked = signal<string | null>(null);

  constructor(session: Session, thread: Thread) {
    this.#session = session;
    this.names = computed(() => session.models.value.map(({ id }) => id));
    this.name = computed(() => {
      // An upstream may report another name than the server lists; ignore it then.
      const answered = thread.turns.value.at(-1)?.details["model"];
      const chosen = [this.#picked.value, answered].find((each) => this.names.value.includes(each as string));
      return (chosen as string | undefined) ?? session.model.value;
    });
    const remembered = session.storage.get("model");
    this.gone = computed(() => {
      if (this.#picked.value !== null || remembered === null || this.names.value.length === 0) return null;
      return this.names.value.includes(remembered) ? null : remembered;
    });
  }

  /** Accept the replacement of a model that is gone, and stop mentioning it. */
  accept(): void {
    const name = this.name.peek();
    if (this.gone.peek() !== null && name !== null) this.choose(name);
  }

  /** Choose the model for this chat and for new ones. */
  choose(name: string): void {
    this.#picked.value = name;
    this.#session.choose(name);
  }
}
