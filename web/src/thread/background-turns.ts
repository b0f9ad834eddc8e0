/** The background turns that wait in a chat, as the server lists them. */

import type { Job } from "turnledger";

export class BackgroundTurns {
  readonly #read: () => Promise<readonly Job[]>;
  readonly #apply: (jobs: readonly Job[]) => void;
  #reading: Promise<void> | null = null;
  #isStale = false;

  constructor(read: () => Promise<readonly Job[]>, apply: (jobs: readonly Job[]) => void) {
    this.#read = read;
    this.#apply = apply;
  }

  get isReading(): boolean {
    return this.#reading !== null;
  }

  /** Read and apply the list. A call during a read makes it repeat: the list may be from before a change. */
  refresh(): Promise<void> {
    this.#isStale = true;
    this.#reading ??= this.#readUntilCurrent().finally(() => (this.#reading = null));
    return this.#reading;
  }

  async #readUntilCurrent(): Promise<void> {
    let jobs: readonly Job[] = [];
    while (this.#isStale) {
      this.#isStale = false;
      try {
        jobs = await this.#read();
      } catch {
        return; // without the list, a turn is shown once it runs
      }
    }
    this.#apply(jobs);
  }
}
