/** A stream of events, read until it ends or is closed. */

import { chain } from "./wire.js";

/** Read it with `for await`. Leaving the loop closes it. Aborting its signal does, too, and throws the reason there. */
export class Stream<Entry> implements AsyncIterableIterator<Entry> {
  isClosed = false;
  /** The error that it ended with, if any. */
  protected problem: unknown;
  readonly #controller = new AbortController();
  readonly #unchain: () => void;
  readonly #source: AsyncGenerator<Entry, void, undefined>;
  #first: Promise<IteratorResult<Entry, void>> | undefined;

  /** Starts now, not at the first read. */
  constructor(make: (signal: AbortSignal) => AsyncGenerator<Entry, void, undefined>, signal: AbortSignal | undefined) {
    this.#unchain = chain(signal, (reason) => this.#controller.abort(reason));
    this.#source = make(this.#controller.signal);
    this.#first = this.#source.next();
    this.#first.catch(() => {}); // its reader receives the error
  }

  async next(): Promise<IteratorResult<Entry, undefined>> {
    const first = this.#first;
    this.#first = undefined;
    try {
      const next = await (first ?? this.#source.next());
      if (!next.done) return next;
    } catch (problem) {
      this.#unchain();
      if (!this.isClosed) throw (this.problem = problem);
    }
    return this.return();
  }

  async return(): Promise<IteratorResult<Entry, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Stop reading, even while waiting for the next event. The turn itself continues. */
  close(): void {
    this.isClosed = true;
    this.#unchain();
    this.#controller.abort();
    void this.#source.return().catch(() => {});
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
