/** Short messages at the edge of the page, each with at most one action. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors } from "turnledger";
import { safeText } from "../markdown/safe-text";
import { strings } from "../strings";

export interface Notice {
  readonly number: number;
  readonly kind: "news" | "problem";
  readonly text: string;
  readonly action?: { readonly label: string; run(): void } | undefined;
  /** Milliseconds that it stays; undefined: until it is closed. */
  readonly stays?: number | undefined;
}

interface Announcement {
  readonly number: number;
  readonly text: string;
}

/** How many announcements are kept, so that none interrupts another. */
const MAX_ANNOUNCED = 4;
/** How many notices without an action are shown at once. */
const MAX_PLAIN = 4;

export class Notices {
  readonly #shown = signal<readonly Notice[]>([]);
  readonly #announced = signal<readonly Announcement[]>([]);
  readonly #onProblem: (problem: unknown) => void;
  #last = 0;

  /** `onProblem`: called with each problem. */
  constructor(onProblem: (problem: unknown) => void = () => {}) {
    this.#onProblem = onProblem;
  }

  /** The visible notices, oldest first. */
  get shown(): ReadonlySignal<readonly Notice[]> {
    return this.#shown;
  }

  get announced(): ReadonlySignal<readonly Announcement[]> {
    return this.#announced;
  }

  /** Announce a text to screen readers. Notices are announced anyway. */
  announce(text: string): void {
    const announcement = { number: ++this.#last, text: safeText(text) };
    this.#announced.value = [...this.#announced.peek().slice(1 - MAX_ANNOUNCED), announcement];
  }

  /** Show a notice, and return a function that removes it. Only the last few stay, but one with an action stays its
   * full time. */
  add(notice: Omit<Notice, "number">): () => void {
    const number = ++this.#last;
    this.announce(notice.text);
    const all = [...this.#shown.value, { ...notice, number, text: safeText(notice.text) }];
    const plain = all.filter(({ action }) => !action);
    this.#shown.value = all.filter((each) => each.action || plain.indexOf(each) >= plain.length - MAX_PLAIN);
    return () => this.remove(number);
  }

  news(text: string, more: Partial<Notice> = {}): () => void {
    return this.add({ stays: 6_000, ...more, kind: "news", text });
  }

  problem(problem: unknown, more: Partial<Notice> = {}): () => void {
    this.#onProblem(problem);
    return this.add({ ...more, kind: "problem", text: errorText(problem) });
  }

  remove(number: number): void {
    this.#shown.value = this.#shown.value.filter((each) => each.number !== number);
  }
}

/** The message of an error. It may repeat untrusted input. */
export function errorText(problem: unknown): string {
  const reasons: Readonly<Record<string, string>> = strings.failure.reasons;
  const known = problem instanceof errors.ConversationUnavailable ? reasons[problem.code] : undefined;
  return known ?? safeText(problem instanceof Error ? problem.message : String(problem));
}
