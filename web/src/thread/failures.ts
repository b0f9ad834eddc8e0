/** The last failed turn of a chat: its reason as text, and whether it is still shown. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, wordsOf, type Attempt, type Failure, type Turn } from "turnledger";
import type { StorageScope } from "../session/storage-scope";
import { safeText } from "../markdown/safe-text";
import { errorText } from "../session/notices";
import type { FailedTurn } from "./thread";
import { strings } from "../strings";

/** How many dismissed failures are remembered. */
const MAX_DISMISSED = 20;
const DISMISSED = "dismissed failures";

export function failureText(code: string, message: string): string {
  const reasons: Readonly<Record<string, string>> = strings.failure.reasons;
  return (Object.hasOwn(reasons, code) && reasons[code]) || message;
}

/** What the server says if it knows no more than the code. */
const NO_DETAIL = /^The model cannot be reached, or stopped early\./;

/** Details from the server, where they help. */
function detailOf(code: string, message: string): string | null {
  const isKnown = message === failureText(code, "") || NO_DETAIL.test(message);
  return /^(model_|malformed_)/.test(code) && !isKnown ? message || null : null;
}

type FailedRequest = Pick<FailedTurn, "name" | "replaces" | "isLocal" | "attempt" | "input"> & {
  /** Whether any of its answer had arrived. */
  readonly hasBegun?: boolean;
};

export function failedTurn({ hasBegun, ...request }: FailedRequest, code: string, message: string): FailedTurn {
  const text = request.input.map(wordsOf).filter(Boolean).join("\n");
  const safe = safeText(message);
  const hasBrokenOff = hasBegun === true && code === "model_unavailable";
  return {
    ...request,
    text,
    code,
    // In the language that is shown then.
    get message() {
      return hasBrokenOff ? strings.failure.brokeOff : failureText(code, safe);
    },
    detail: detailOf(code, safe),
    isStopped: code === "turn_stopped",
  };
}

/** The failed turn for an error, or for the failure in its last event. */
export function failedTurnOf(request: FailedRequest, problem: unknown): FailedTurn {
  if (problem instanceof errors.TurnledgerError) return failedTurn(request, problem.code, problem.message);
  const { code, message } = (problem ?? {}) as Partial<Failure>;
  return failedTurn(request, String(code ?? "unknown"), message ?? errorText(problem));
}

export class Failures {
  readonly #storage: StorageScope;
  readonly #last = signal<FailedTurn | null>(null);
  #known: ReadonlySet<string | null> = new Set();

  constructor(storage: StorageScope) {
    this.#storage = storage;
  }

  get last(): ReadonlySignal<FailedTurn | null> {
    return this.#last;
  }

  /** `known`: the turns that were committed or pending then. Any other last turn came later. */
  put(failure: FailedTurn, known: readonly (string | null)[]): void {
    this.#last.value = failure;
    this.#known = new Set(known);
  }

  /** A later turn makes it obsolete. */
  clear(): void {
    this.#last.value = null;
  }

  /** The user dismisses it, also after a reload. */
  dismiss(): void {
    const attempt = this.#last.peek()?.attempt;
    if (attempt) this.#storage.set(DISMISSED, JSON.stringify([...this.#dismissed().slice(1 - MAX_DISMISSED), attempt]));
    this.clear();
  }

  /** Show the last failed attempt of a page, unless a later turn makes it obsolete. */
  find(turns: readonly Turn[], attempts: readonly Attempt[]): void {
    const head = turns.at(-1)?.id ?? null;
    if (this.#last.peek() && !this.#known.has(head)) this.clear();
    if (this.#last.peek()) return;
    const last = lastFailedAttempt(turns, attempts);
    if (!last?.failure || this.#dismissed().includes(last.id)) return;
    const hasBegun = last.partial !== "" || last.steps.length > 0;
    const { id, input, replaces } = last;
    const request = { name: id, input, replaces, isLocal: false, attempt: id, hasBegun };
    this.put(failedTurn(request, last.failure.code, last.failure.message), [head]);
  }

  #dismissed(): string[] {
    try {
      const found: unknown = JSON.parse(this.#storage.get(DISMISSED) ?? "[]");
      return Array.isArray(found) ? found.map(String) : [];
    } catch {
      return [];
    }
  }
}

/** The newest attempt, if it failed and no turn followed. */
export function lastFailedAttempt(turns: readonly Turn[], attempts: readonly Attempt[]): Attempt | null {
  const later = (one: Attempt, other: Attempt): Attempt => (one.createdAt >= other.createdAt ? one : other);
  const newest = attempts.length > 0 ? attempts.reduce(later) : null;
  if (newest?.state !== "failed") return null;
  const last = turns.reduce((latest, turn) => Math.max(latest, turn.committedAt), 0);
  return newest.createdAt >= last || (newest.endedAt ?? 0) >= last ? newest : null;
}
