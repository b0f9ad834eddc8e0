/** Elect one tab as leader: it holds a lock, which the browser passes on when the tab closes. */

export class LeaderElection {
  readonly #name: string;
  readonly #lead: (ending: AbortSignal) => Promise<void>;
  #candidacy: AbortController | null = null;
  #isLeader = false;

  /** `lead`: done by the one who leads, until the signal says that he does no more. */
  constructor(name: string, lead: (ending: AbortSignal) => Promise<void>) {
    this.#name = name;
    this.#lead = lead;
  }

  get isLeader(): boolean {
    return this.#isLeader;
  }

  /** Wait to lead; or take it from who leads and does not answer: a tab may be frozen with the lock in its hands.
   * Rejects if there are no locks for this page. */
  async join(takes = false): Promise<void> {
    this.leave();
    const standing = (this.#candidacy = new AbortController());
    const { signal } = standing;
    let hasHeld = false;
    const hold = async (): Promise<void> => {
      if (signal.aborted) return;
      this.#isLeader = hasHeld = true;
      await this.#lead(signal);
      if (!signal.aborted) this.#isLeader = false;
    };
    try {
      await navigator.locks.request(this.#name, takes ? { steal: true } : { signal }, hold);
    } catch (problem) {
      if (signal.aborted) return;
      if (!hasHeld) throw problem;
      await this.join(); // it was taken from here
    }
  }

  /** Lead no more, and do not wait for it. */
  leave(): void {
    this.#candidacy?.abort();
    this.#candidacy = null;
    this.#isLeader = false;
  }
}
