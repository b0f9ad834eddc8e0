/** The position of a tab in the shared feed: delivers each change once and in order, and detects gaps.
 *
 * Positions are opaque and encoded differently each time, so tabs number the changes: the change after number N is
 * N + 1 in every tab.
 */

import type { Change } from "turnledger";

/** A run of changes without a gap, complete since that time by the clock of this machine. */
interface Epoch {
  readonly name: string;
  readonly since: number;
}

/** A change, and its number within the epoch. */
export interface NumberedChange {
  readonly epoch: Epoch;
  readonly number: number;
  readonly change: Change;
}

/** A position to read on from. */
export interface FeedPosition {
  readonly epoch: Epoch;
  readonly number: number;
  readonly position: string;
}

/** How many changes are remembered, for tabs that slept. */
const REMEMBERED = 256;

export class FeedCursor {
  #position: FeedPosition | null = null;
  #recent: NumberedChange[] = [];
  readonly #since: number;

  /** `since`: when this tab began to read what it shows. It needs every later change. */
  constructor(since: number) {
    this.#since = since;
  }

  /** Null before the first change. */
  get position(): FeedPosition | null {
    return this.#position;
  }

  begin(epoch: Epoch, position: string): FeedPosition {
    this.#recent = [];
    return (this.#position = { epoch, number: 0, position });
  }

  /** The changes to emit; null if an earlier one is missing and must be requested. */
  accept(told: NumberedChange): readonly Change[] | null {
    const { epoch, number, change } = told;
    const heard = this.#position;
    if (heard?.epoch.name !== epoch.name) {
      const gap = this.#join({ epoch, number, position: change.position });
      this.#recent = [told];
      return gap === null ? [change] : change.type === "gap" ? [change] : [gap, change];
    }
    if (number <= heard.number) return [];
    if (number > heard.number + 1) return null;
    this.#position = { epoch, number, position: change.position };
    this.#recent.push(told);
    if (this.#recent.length > 2 * REMEMBERED) this.#recent = this.#recent.slice(-REMEMBERED);
    return [change];
  }

  /** Compare with the position of the leader, after everything it had to send: null, or a gap if changes were missed.
   * */
  compare(there: FeedPosition): Change | null {
    const heard = this.#position;
    if (heard?.epoch.name === there.epoch.name && there.number <= heard.number) return null;
    return this.#join(there);
  }

  /** The changes after a number of an epoch, as far as they are remembered. */
  after(epoch: string | null, number: number): readonly NumberedChange[] {
    const later = this.#recent.filter((each) => each.epoch.name === epoch && each.number > number);
    return later[0]?.number === number + 1 ? later : [];
  }

  #join(there: FeedPosition): Change | null {
    // A tab that read its chats after this epoch began, and listened since, has missed nothing.
    const isWhole = this.#position === null && there.epoch.since <= this.#since;
    this.#position = there;
    this.#recent = [];
    return isWhole ? null : { type: "gap", position: there.position, at: Date.now() };
  }
}
