/** Elect one tab as leader: it holds a lock, which the browser passes on when the tab closes. */

export class LeaderElection {
  readonly #name: string;
  readonly #lead: (ending: AbortSignal) => Promise<void>;
  #candidacy: AbortController | null = null;
  #isLeader = false;

  /** `lead`: run by the leader until the signal ends its lead. */
  constructor(name: string, lead: (ending: AbortSignal) => Promise<void>) {
    this.#name = name;
    this.#lead = lead;
  }

  get isLeader(): boolean {
    return this.#isLeader;
  }

  /** Wait to become the leader, or take the lead from a tab that does not answer: it may be frozen while it holds the
   * lock. Rejects if this page has no locks. */
  async join(steals = false): Promise<void> {
    this.leave();
    const candidacy = (this.#candidacy = new AbortController());
    const { signal } = candidacy;
    let hasHeld = false;
    const hold = async (): Promise<void> => {
      if (signal.aborted) return;
      this.#isLeader = hasHeld = true;
      await this.#lead(signal);
      if (!signal.aborted) this.#isLeader = false;
    };
    try {
      await navigator.locks.request(this.#name, steals ? { steal: true } : { signal }, hold);
    } catch (problem) {
      if (signal.aborted) return;
      if (!hasHeld) throw problem;
      await this.join(); // another tab took the lead
    }
  }

  leave(): void {
    this.#candidacy?.abort();
    this.#candidacy = null;
    this.#isLeader = false;
  }
}
