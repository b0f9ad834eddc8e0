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
const MAX_REMEMBERED = 256;

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
  accept(numbered: NumberedChange): readonly Change[] | null {
    const { epoch, number, change } = numbered;
    const current = this.#position;
    if (current?.epoch.name !== epoch.name) {
      const gap = this.#join({ epoch, number, position: change.position });
      this.#recent = [numbered];
      return gap === null ? [change] : change.type === "gap" ? [change] : [gap, change];
    }
    if (number <= current.number) return [];
    if (number > current.number + 1) return null;
    this.#position = { epoch, number, position: change.position };
    this.#recent.push(numbered);
    if (this.#recent.length > 2 * MAX_REMEMBERED) this.#recent = this.#recent.slice(-MAX_REMEMBERED);
    return [change];
  }

  /** Compare with the position of the leader, after everything it had to send: null, or a gap if changes were missed.
   * */
  compare(leader: FeedPosition): Change | null {
    const current = this.#position;
    if (current?.epoch.name === leader.epoch.name && leader.number <= current.number) return null;
    return this.#join(leader);
  }

  /** The changes after a number of an epoch, as far as they are remembered. */
  after(epoch: string | null, number: number): readonly NumberedChange[] {
    const later = this.#recent.filter((each) => each.epoch.name === epoch && each.number > number);
    return later[0]?.number === number + 1 ? later : [];
  }

  #join(leader: FeedPosition): Change | null {
    // A tab that read its chats after this epoch began, and listened since, has missed nothing.
    const isWhole = this.#position === null && leader.epoch.since <= this.#since;
    this.#position = leader;
    this.#recent = [];
    return isWhole ? null : { type: "gap", position: leader.position, at: Date.now() };
  }
}
