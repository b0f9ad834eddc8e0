/** The pending turns of a chat, in the order in which they run. */

import { signal, type ReadonlySignal } from "@preact/signals";
import type { PendingTurn } from "./pending-turn";

export class PendingTurns {
  readonly #all = signal<readonly PendingTurn[]>([]);

  get all(): ReadonlySignal<readonly PendingTurn[]> {
    return this.#all;
  }

  of(turn: string): PendingTurn | undefined {
    return this.#all.peek().find((each) => each.turnId.peek() === turn);
  }

  has(pending: PendingTurn): boolean {
    return this.#all.peek().includes(pending);
  }

  /** A message from here that was sent and has no turn id yet. */
  get unidentified(): PendingTurn | undefined {
    return this.#all.peek().find((each) => isUnidentified(each) && each.guess.peek() === null);
  }

  /** Whether this is probably the turn of a message from here. */
  isGuessed(turn: string): boolean {
    return this.#all.peek().some((each) => isUnidentified(each) && each.guess.peek() === turn);
  }

  /** Another turn was queued: earlier guesses may be wrong. */
  doubtGuesses(): void {
    for (const each of this.#all.peek()) if (isUnidentified(each) && each.guess.peek() !== null) each.isDoubtful = true;
  }

  /** How many messages hold a connection until the server reports their turn. */
  get connections(): number {
    return this.#all.value.filter((each) => each.isSent.value && each.turnId.value === null).length;
  }

  /** Add it at the end; or before all waiting ones, if it does not wait for them. */
  add(pending: PendingTurn, skipsQueue = false): void {
    const all = this.#all.peek();
    const waits = skipsQueue ? all.findIndex((each) => isWaiting(each)) : -1;
    const index = waits < 0 ? all.length : waits;
    this.#all.value = [...all.slice(0, index), pending, ...all.slice(index)];
  }

  /** It has started: move it before all waiting ones. */
  moveStarted(pending: PendingTurn): void {
    const all = this.#all.peek().filter((each) => each !== pending);
    const waits = all.findIndex((each) => isWaiting(each));
    const index = waits < 0 ? all.length : waits;
    const ordered = [...all.slice(0, index), pending, ...all.slice(index)];
    if (ordered.some((each, at) => each !== this.#all.peek()[at])) this.#all.value = ordered;
  }

  remove(pending: PendingTurn): void {
    if (this.has(pending)) this.#all.value = this.#all.peek().filter((each) => each !== pending);
  }

  /** How many run or wait before it. */
  countBefore(pending: PendingTurn): number {
    const index = this.#all.value.indexOf(pending);
    return this.#all.value.slice(0, Math.max(0, index)).filter((each) => each.state.value !== "ending").length;
  }

  /** The running one, or the first that waits. */
  get first(): PendingTurn | undefined {
    return this.#all.peek().find((each) => each.state.peek() !== "ending");
  }
}

function isUnidentified(pending: PendingTurn): boolean {
  return pending.isLocal && pending.isSent.peek() && pending.turnId.peek() === null;
}

function isWaiting(pending: PendingTurn): boolean {
  const state = pending.state.peek();
  return state === "sending" || state === "queued";
}
