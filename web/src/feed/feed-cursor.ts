/** The position of a tab in the shared feed: delivers each change once and in order, and detects gaps.
 *
 * Positions are opaque and encoded differently each time, so tabs number the changes: the change after number N is
 * N + 1 in every tab.
 */

import type { Change } from "turnledger";

/** A row of changes without a gap, and since when (by the clock of the machine) nothing is missing in it. */
interface Epoch {
  readonly name: string;
  readonly since: number;
}

/** A change, and the how manieth of its epoch it is. */
export interface NumberedChange {
  readonly epoch: Epoch;
  readonly number: number;
  readonly change: Change;
}

/** A place behind which somebody can read on. */
export interface FeedPosition {
  readonly epoch: Epoch;
  readonly number: number;
  readonly position: string;
}

/** How many are remembered, for tabs that slept. */
const REMEMBERED = 256;

export class FeedCursor {
  #position: FeedPosition | null = null;
  #recent: NumberedChange[] = [];
  readonly #since: number;

  /** `since`: when this tab began to ask for what it shows. Whatever happened later, it has to hear. */
  constructor(since: number) {
    this.#since = since;
  }

  /** Null: nothing yet. */
  get position(): FeedPosition | null {
    return this.#position;
  }

  /** Begin a row of changes behind a position. */
  begin(epoch: Epoch, position: string): FeedPosition {
    this.#recent = [];
    return (this.#position = { epoch, number: 0, position });
  }

  /** What listeners are to be told; null: something before it is missing, ask for it. */
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

  /** Somebody says how far the stream is, behind everything that he had to tell: null, or that something was missed. */
  compare(there: FeedPosition): Change | null {
    const heard = this.#position;
    if (heard?.epoch.name === there.epoch.name && there.number <= heard.number) return null;
    return this.#join(there);
  }

  /** What came behind a number of an epoch, as far as it is remembered. */
  after(epoch: string | null, number: number): readonly NumberedChange[] {
    const later = this.#recent.filter((each) => each.epoch.name === epoch && each.number > number);
    return later[0]?.number === number + 1 ? later : [];
  }

  #join(there: FeedPosition): Change | null {
    // Who asked for what he shows when all this was heard already, and listened ever since, has missed nothing.
    const isWhole = this.#position === null && there.epoch.since <= this.#since;
    this.#position = there;
    this.#recent = [];
    return isWhole ? null : { type: "gap", position: there.position, at: Date.now() };
  }
}
