/** The last failed turn of a chat: its reason as text, and whether it is still worth showing. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, wordsOf, type Attempt, type Failure, type Turn } from "turnledger";
import type { StorageScope } from "../session/storage-scope";
import { safeText } from "../markdown/safe-text";
import { errorText } from "../session/notices";
import type { FailedTurn } from "./thread";

/** How many dismissed failures are remembered. */
const REMEMBERED = 20;
const DISMISSED = "dismissed failures";

const WORDS: Readonly<Record<string, string>> = {
  model_unavailable: "The model could not be reached.",
  model_timeout: "The model took too long to answer.",
  model_refused: "The model refused this request.",
  malformed_answer: "The model’s answer broke off or could not be read.",
  empty_turn: "The model said nothing.",
  turn_stopped: "Stopped. Nothing of it was kept.",
  process_died: "The server ended while this was being answered.",
  cancelled: "The server ended before this was answered.",
  superseded: "Another server took this chat over while this was being answered.",
  conversation_busy: "Another message is being answered in this chat.",
  queue_full: "Too many messages are waiting in this chat already.",
  wait_ended: "This message waited too long for the others before it.",
  conversation_deleted: "This chat was deleted.",
  conversation_expired: "This chat has expired.",
  conversation_not_found: "This chat is not there any more.",
  turn_not_found: "The message that this was to replace is not shown any more.",
  storage_full: "There is no room left for more messages.",
  store_full: "There is no room left for more messages.",
  store_unavailable: "The server could not store this.",
  server_unavailable: "The server could not be reached.",
  outcome_unknown: "Nobody knows whether this was answered. Look at the chat before you send it again.",
};

export function failureText(code: string, message: string): string {
  return (Object.hasOwn(WORDS, code) && WORDS[code]) || message;
}

/** Details from the server, where they help. */
function detailOf(code: string, message: string): string | null {
  const said = message.replace(/^[A-Z]\w+: /, ""); // the name of a class, which repeats the code
  return /^(model_|malformed_)/.test(code) && said !== WORDS[code] ? said || null : null;
}

type Asked = Pick<FailedTurn, "name" | "replaces" | "isHere" | "attempt" | "input">;

export function failedTurn(asked: Asked, code: string, message: string): FailedTurn {
  const text = asked.input.map(wordsOf).filter(Boolean).join("\n");
  const said = safeText(message);
  const words = { message: failureText(code, said), detail: detailOf(code, said) };
  return { ...asked, text, code, ...words, isStopped: code === "turn_stopped" };
}

/** The failed turn for an error, or for the failure in its last event. */
export function failedTurnOf(asked: Asked, problem: unknown): FailedTurn {
  if (problem instanceof errors.TurnledgerError) return failedTurn(asked, problem.code, problem.message);
  const { code, message } = (problem ?? {}) as Partial<Failure>;
  return failedTurn(asked, String(code ?? "unknown"), message ?? errorText(problem));
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
    if (attempt) this.#storage.set(DISMISSED, JSON.stringify([...this.#dismissed().slice(1 - REMEMBERED), attempt]));
    this.clear();
  }

  /** Show the last failed attempt of a page, unless a later turn makes it obsolete. */
  find(turns: readonly Turn[], attempts: readonly Attempt[]): void {
    const head = turns.at(-1)?.id ?? null;
    if (this.#last.peek() && !this.#known.has(head)) this.clear();
    if (this.#last.peek()) return;
    const last = lastFailedAttempt(turns, attempts);
    if (!last?.failure || this.#dismissed().includes(last.id)) return;
    const asked = { name: last.id, input: last.input, replaces: null, isHere: false, attempt: last.id };
    this.put(failedTurn(asked, last.failure.code, last.failure.message), [head]);
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
