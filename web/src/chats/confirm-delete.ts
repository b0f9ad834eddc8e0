/** Confirm by a second press: the first press arms the action for a few seconds. */

import { signal, type ReadonlySignal } from "@preact/signals";

/** Milliseconds for which it stays armed. */
export const ARMED_FOR = 4_000;

export class ConfirmDelete {
  readonly #armed = signal<string | null>(null);
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** What is armed; null: nothing. */
  get armed(): ReadonlySignal<string | null> {
    return this.#armed;
  }

  /** Say it. Returns whether it was said before, and is to be done. */
  press(what: string): boolean {
    const isSecond = this.#armed.peek() === what;
    this.disarm();
    if (isSecond) return true;
    this.#armed.value = what;
    this.#timer = setTimeout(() => this.disarm(), ARMED_FOR);
    return false;
  }

  disarm(): void {
    clearTimeout(this.#timer);
    this.#armed.value = null;
  }
}
