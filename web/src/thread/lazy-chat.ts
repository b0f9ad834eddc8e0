/** The chat of a thread. A new one is created once, however many first messages wait for it. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, freshKey, type Chat, type Client, type NewChat } from "turnledger";

/** Milliseconds before an unreachable server is tried again. */
const RETRY_PAUSE = 2_000;

export class LazyChat {
  /** The key that it is created with. */
  readonly name: string;
  /** Its options. They are final once a message waits for it: another tab may create it with them. */
  facts: NewChat;
  readonly #client: Client;
  readonly #ending: AbortSignal;
  readonly #onCreated: (id: string) => void;
  readonly #id = signal<string | null>(null);
  #creating: Promise<void> | null = null;

  /** `onCreated`: called as soon as it exists. */
  constructor(
    client: Client,
    id: string | null,
    facts: NewChat,
    onCreated: (id: string) => void,
    ending: AbortSignal,
    name = freshKey(),
  ) {
    this.#client = client;
    this.#id.value = id;
    this.facts = facts;
    this.#onCreated = onCreated;
    this.#ending = ending;
    this.name = name;
  }

  get id(): ReadonlySignal<string | null> {
    return this.#id;
  }

  /** Valid only once it exists. */
  get chat(): Chat {
    return this.#client.chats.open(this.#id.peek() as string);
  }

  /** Create it if it does not exist. Waits for a lost connection. */
  create(): Promise<void> {
    if (this.#id.peek() !== null) return Promise.resolve();
    this.#creating ??= this.#create().finally(() => (this.#creating = null));
    return this.#creating;
  }

  async #create(): Promise<void> {
    for (;;) {
      try {
        const options = { ...this.facts, idempotencyKey: this.name, signal: this.#ending };
        const { id } = await this.#client.chats.create(options);
        this.#id.value = id;
        this.#onCreated(id as string);
        return;
      } catch (problem) {
        const isLost = problem instanceof errors.TurnledgerError && problem.isRetryable;
        if (!isLost || this.#ending.aborted) throw problem;
        await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE));
      }
    }
  }
}
