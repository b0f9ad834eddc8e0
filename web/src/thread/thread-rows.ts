/** The rows of a thread: turns of the history, then pending ones. */

import type { Turn } from "turnledger";
import type { PendingTurn } from "./pending-turn";

/** Either a turn or a pending one. A pending turn keeps its name when it is committed. */
export interface ThreadRow {
  readonly name: string;
  readonly turn: Turn | null;
  readonly pending: PendingTurn | null;
}

/** Turns that a pending one replaces are left out, and those after them. */
export function threadRows(
  turns: readonly Turn[],
  pending: readonly PendingTurn[],
  nameOf: (turn: Turn) => string,
): readonly ThreadRow[] {
  const committed = new Set(turns.map(({ id }) => id));
  const isCommitted = (each: PendingTurn): boolean => each.turnId.value !== null && committed.has(each.turnId.value);
  const uncommitted = pending.filter((each) => !isCommitted(each));
  const first = uncommitted.find(({ state }) => state.value !== "ending");
  const replaced = uncommitted
    // While another one runs first, the replaced turn is still shown.
    .filter((each) => each.replaces.value !== null && (each === first || each.state.value === "ending"))
    .map((each) => turns.findIndex(({ id }) => id === each.replaces.value))
    .filter((index) => index >= 0);
  const shown = turns.slice(0, Math.min(turns.length, ...replaced));
  return [
    ...shown.map((turn) => ({ name: nameOf(turn), turn, pending: null })),
    ...uncommitted.map((each) => ({ name: each.name, turn: null, pending: each })),
  ];
}
