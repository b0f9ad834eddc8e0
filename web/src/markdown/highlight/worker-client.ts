/** Highlight code in a worker, so that no code can block the page. */

import script from "./worker?worker&url";
import type { HighlightSpans } from "./highlight";

/** Milliseconds for one block; slower code is probably an attack. */
const PATIENCE = 1_000;
/** Failures after which highlighting stays off. */
const MOST_FAILURES = 5;

interface Question {
  readonly number: number;
  readonly code: string;
  readonly language: string;
  readonly answer: (marks: HighlightSpans | null) => void;
}

class HighlightQueue {
  #worker: Worker | null = null;
  #failures = 0;
  #numbers = 0;
  #questions: Question[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  ask(code: string, language: string): Promise<HighlightSpans | null> {
    return new Promise((answer) => {
      this.#numbers += 1;
      this.#questions.push({ number: this.#numbers, code, language, answer });
      if (this.#questions.length === 1) this.#next();
    });
  }

  /** One at a time, so that a timeout identifies the slow one. */
  #next(): void {
    const question = this.#questions[0];
    if (question === undefined) return;
    const worker = this.#started();
    if (worker === null) return this.#answered(null);
    const { number, code, language } = question;
    worker.postMessage({ number, code, language });
    this.#timer = setTimeout(() => this.#failed(), PATIENCE);
  }

  #answered(marks: HighlightSpans | null): void {
    clearTimeout(this.#timer);
    this.#questions.shift()?.answer(marks);
    this.#next();
  }

  #failed(): void {
    this.#worker?.terminate();
    this.#worker = null;
    this.#failures += 1;
    this.#answered(null);
  }

  #started(): Worker | null {
    if (this.#worker !== null || this.#failures > MOST_FAILURES) return this.#worker;
    try {
      const worker = new Worker((policy?.createScriptURL(script) ?? script) as string, { type: "module" });
      worker.addEventListener("message", ({ data }: MessageEvent<{ number: number; marks: HighlightSpans | null }>) => {
        if (data.number === this.#questions[0]?.number) this.#answered(data.marks);
      });
      worker.addEventListener("error", () => this.#failed());
      this.#worker = worker;
    } catch {
      // Without workers there are no colours.
      this.#failures = Infinity;
    }
    return this.#worker;
  }
}

/** The only script URL that this page trusts is its own worker. */
const policy = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes?.createPolicy("turnledger", {
  createScriptURL: (url) => {
    if (url !== script) throw new TypeError("This is no script of the page.");
    return url;
  },
});

interface TrustedTypes {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): { createScriptURL(url: string): unknown };
}

const queue = new HighlightQueue();

/** Highlight code; null if that is not possible. */
export function highlightInWorker(code: string, language: string): Promise<HighlightSpans | null> {
  return queue.ask(code, language);
}
