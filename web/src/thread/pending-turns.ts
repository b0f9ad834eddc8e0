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

  /** Whether a message from here was sent and has no turn id yet. */
  get hasUnidentified(): boolean {
    return this.#all.peek().some((each) => each.isLocal && each.isSent.peek() && each.turnId.peek() === null);
  }

  /** Whether turns from elsewhere wait. */
  get hasOthersQueued(): boolean {
    return this.#all.peek().some((each) => !each.isLocal && each.state.peek() === "queued");
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

  /** The running one, or the first that waits. */
  get first(): PendingTurn | undefined {
    return this.#all.peek().find((each) => each.state.peek() !== "ending");
  }
}

/** How many of these turns, and of those that only the server knows, run or wait before it. */
export function countBefore(all: readonly PendingTurn[], pending: PendingTurn): number {
  const shown = all.slice(0, Math.max(0, all.indexOf(pending))).filter((each) => each.state.value !== "ending");
  return Math.max(shown.length, pending.ahead.value);
}

function isWaiting(pending: PendingTurn): boolean {
  const state = pending.state.peek();
  return state === "sending" || state === "queued";
}
