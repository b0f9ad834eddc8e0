/** The chat of a thread. A new one is created once, however many first messages wait for it. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, freshKey, type Chat, type Client, type NewChat } from "turnledger";

/** Milliseconds before a server is tried again that was not found for a minute. */
const PAUSE = 2_000;

export class LazyChat {
  /** Under which it is made. */
  readonly name: string;
  /** What it is to be. */
  readonly facts: NewChat;
  readonly #client: Client;
  readonly #ending: AbortSignal;
  readonly #made: (id: string) => void;
  readonly #id = signal<string | null>(null);
  #creating: Promise<void> | null = null;

  /** `made`: told as soon as it is there. */
  constructor(
    client: Client,
    id: string | null,
    facts: NewChat,
    made: (id: string) => void,
    ending: AbortSignal,
    name = freshKey(),
  ) {
    this.#client = client;
    this.#id.value = id;
    this.facts = facts;
    this.#made = made;
    this.#ending = ending;
    this.name = name;
  }

  get id(): ReadonlySignal<string | null> {
    return this.#id;
  }

  /** To be asked only once it is there. */
  get chat(): Chat {
    return this.#client.chats.open(this.#id.peek() as string);
  }

  /** Have it made, if it is not there. A lost connection is waited for. */
  create(): Promise<void> {
    if (this.#id.peek() !== null) return Promise.resolve();
    this.#creating ??= this.#create().finally(() => (this.#creating = null));
    return this.#creating;
  }

  async #create(): Promise<void> {
    for (;;) {
      try {
        const asked = { ...this.facts, idempotencyKey: this.name, signal: this.#ending };
        const { id } = await this.#client.chats.create(asked);
        this.#id.value = id;
        this.#made(id as string);
        return;
      } catch (problem) {
        const isLost = problem instanceof errors.TurnledgerError && problem.isRetryable;
        if (!isLost || this.#ending.aborted) throw problem;
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    }
  }
}
