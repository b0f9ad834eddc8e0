/** Highlight code in a worker, so that no code can block the page. */

import { trustedScriptUrl } from "../../browser/script-urls";
import type { HighlightSpans } from "./highlight";

/** Milliseconds for one block; slower code is probably an attack. */
const TIMEOUT = 1_000;
/** Failures after which highlighting stays off. */
const MAX_FAILURES = 5;

interface HighlightJob {
  readonly number: number;
  readonly code: string;
  readonly language: string;
  readonly answer: (marks: HighlightSpans | null) => void;
}

type WorkerMessage = "ready" | { readonly number: number; readonly marks: HighlightSpans | null };

class HighlightQueue {
  #worker: Worker | null = null;
  #isReady = false;
  #failures = 0;
  #numbers = 0;
  #jobs: HighlightJob[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  ask(code: string, language: string): Promise<HighlightSpans | null> {
    return new Promise((answer) => {
      this.#numbers += 1;
      this.#jobs.push({ number: this.#numbers, code, language, answer });
      if (this.#jobs.length === 1) this.#next();
    });
  }

  /** One at a time, so that a timeout identifies the slow one. */
  #next(): void {
    const job = this.#jobs[0];
    if (job === undefined) return;
    const worker = this.#startedWorker();
    if (worker === null) return this.#finish(null);
    const { number, code, language } = job;
    worker.postMessage({ number, code, language });
    if (this.#isReady) this.#limitTime();
  }

  #limitTime(): void {
    this.#timer = setTimeout(() => this.#fail(), TIMEOUT);
  }

  #finish(marks: HighlightSpans | null): void {
    clearTimeout(this.#timer);
    this.#jobs.shift()?.answer(marks);
    this.#next();
  }

  #fail(): void {
    this.#worker?.terminate();
    this.#worker = null;
    this.#isReady = false;
    this.#failures += 1;
    this.#finish(null);
  }

  #startedWorker(): Worker | null {
    if (this.#worker !== null || this.#failures > MAX_FAILURES) return this.#worker;
    try {
      const worker = new Worker(trustedScriptUrl("highlighter"), { type: "module" });
      worker.addEventListener("message", ({ data }: MessageEvent<WorkerMessage>) => {
        if (data === "ready") {
          // Its first code waited for it to load, which is no fault of the code.
          this.#isReady = true;
          this.#limitTime();
        } else if (data.number === this.#jobs[0]?.number) this.#finish(data.marks);
      });
      worker.addEventListener("error", () => this.#fail());
      this.#worker = worker;
    } catch {
      // Without workers there are no colours.
      this.#failures = Infinity;
    }
    return this.#worker;
  }
}

const queue = new HighlightQueue();

/** Highlight code; null if that is not possible. */
export function highlightInWorker(code: string, language: string): Promise<HighlightSpans | null> {
  return queue.ask(code, language);
}
