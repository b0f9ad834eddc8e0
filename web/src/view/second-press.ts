/** Confirm by a second press: the first press arms the action for a few seconds. */

import { signal, type ReadonlySignal } from "@preact/signals";

/** Milliseconds until it disarms itself. */
export const ARMED_TIME = 4_000;

export class SecondPress {
  readonly #armed = signal<string | null>(null);
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** The armed action; null if there is none. */
  get armed(): ReadonlySignal<string | null> {
    return this.#armed;
  }

  /** Press once. Returns whether this is the second press, which confirms. */
  press(id: string): boolean {
    const isSecond = this.#armed.peek() === id;
    this.disarm();
    if (isSecond) return true;
    this.#armed.value = id;
    this.#timer = setTimeout(() => this.disarm(), ARMED_TIME);
    return false;
  }

  disarm(): void {
    clearTimeout(this.#timer);
    this.#armed.value = null;
  }
}
