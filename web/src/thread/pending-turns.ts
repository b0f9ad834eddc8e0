/** What is on its way in a chat, in the order in which it is to run. */

import { signal, type ReadonlySignal } from "@preact/signals";
import type { Running } from "./pending-turn";

export class OnItsWay {
  readonly #all = signal<readonly Running[]>([]);

  get all(): ReadonlySignal<readonly Running[]> {
    return this.#all;
  }

  /** The one of this turn. */
  of(turn: string): Running | undefined {
    return this.#all.peek().find((each) => each.turnId.peek() === turn);
  }

  has(running: Running): boolean {
    return this.#all.peek().includes(running);
  }

  /** One from here that is on its way to the server, of which nobody knows which turn it is. */
  get unknown(): Running | undefined {
    return this.#all.peek().find((each) => isHeld(each) && each.guess.peek() === null);
  }

  /** Whether it is the turn of one from here, by all appearances. */
  isGuessed(turn: string): boolean {
    return this.#all.peek().some((each) => isHeld(each) && each.guess.peek() === turn);
  }

  /** Another turn got in line: what was guessed before may be wrong. */
  doubt(): void {
    for (const each of this.#all.peek()) if (isHeld(each) && each.guess.peek() !== null) each.isDoubtful = true;
  }

  /** How many from here hold a connection each, until the server says which turn they are. */
  get held(): number {
    return this.#all.value.filter((each) => each.isAsked.value && each.turnId.value === null).length;
  }

  /** Put it behind the others; or before all that wait, if it does not wait for them. */
  add(running: Running, goesFirst = false): void {
    const all = this.#all.peek();
    const waits = goesFirst ? all.findIndex((each) => isWaiting(each)) : -1;
    const place = waits < 0 ? all.length : waits;
    this.#all.value = [...all.slice(0, place), running, ...all.slice(place)];
  }

  /** It has begun: nothing that waits is before it. */
  begun(running: Running): void {
    const all = this.#all.peek().filter((each) => each !== running);
    const waits = all.findIndex((each) => isWaiting(each));
    const place = waits < 0 ? all.length : waits;
    const ordered = [...all.slice(0, place), running, ...all.slice(place)];
    if (ordered.some((each, at) => each !== this.#all.peek()[at])) this.#all.value = ordered;
  }

  leave(running: Running): void {
    if (this.has(running)) this.#all.value = this.#all.peek().filter((each) => each !== running);
  }

  /** How many run or wait before it. */
  before(running: Running): number {
    const place = this.#all.value.indexOf(running);
    return this.#all.value.slice(0, Math.max(0, place)).filter((each) => each.state.value !== "ending").length;
  }

  /** What runs; else what waits first. */
  get first(): Running | undefined {
    return this.#all.peek().find((each) => each.state.peek() !== "ending");
  }
}

function isHeld(running: Running): boolean {
  return running.isHere && running.isAsked.peek() && running.turnId.peek() === null;
}

function isWaiting(running: Running): boolean {
  const state = running.state.peek();
  return state === "sending" || state === "queued";
}
