/** Follows a turn to its end. The stream is open only while the chat is visible: a browser allows six connections to a
 * server, for all its tabs. */

import { effect, type ReadonlySignal } from "@preact/signals";
import { errors, type Stream, type TurnEvent, type TurnStream } from "turnledger";
import type { PendingTurn } from "./pending-turn";

/** How a turn ended. `gone`: it is no longer followed here. */
export type TurnOutcome =
  | { readonly kind: "committed" | "gone" }
  | { readonly kind: "failed"; readonly problem: unknown };

export interface TurnSource {
  /** Request the turn, with the same key each time, so that it runs once. Undefined: it was requested elsewhere. */
  readonly request?: () => TurnStream;
  /** Called before a retry: returns whether that may be sent yet. */
  readonly mayRetry?: () => () => boolean;
  read(turn: string, after: number): Stream<TurnEvent>;
}

/** Failures of the process that ran a turn, not of the model: the turn is requested again, and resumes after its last
 * finished step. */
const PROCESS_FAILURES =
  /^(process_died|cancelled|gave_up|not_committed|shutting_down|superseded|ledger_closed|store_.*|.*outcome_unknown)$/;

/** Milliseconds between checks whether a server has accepted a turn: its stream is silent until it runs. */
const ID_POLL_INTERVAL = 100;
/** Milliseconds before an unreachable server is tried again. */
const RETRY_PAUSE = 3_000;
/** Maximum requests of one turn, if its process ends each time. */
const MAX_REQUESTS = 10;

export class TurnReader {
  readonly #isShown: ReadonlySignal<boolean>;
  readonly #before: (pending: PendingTurn) => number;
  readonly #ending: AbortSignal;

  /** `isShown`: whether the chat is visible. `before`: how many turns come before one. Both are tracked as they change.
   * */
  constructor(isShown: ReadonlySignal<boolean>, before: (pending: PendingTurn) => number, ending: AbortSignal) {
    this.#isShown = isShown;
    this.#before = before;
    this.#ending = ending;
  }

  /** Follow a turn, and resolve when it has ended. Waits while the connection is lost. Never throws. */
  async follow(pending: PendingTurn, source: TurnSource, withdrawn?: AbortSignal): Promise<TurnOutcome> {
    const isOver = (): boolean => this.#ending.aborted || !!withdrawn?.aborted;
    let last: TurnOutcome = { kind: "gone" };
    let isRetry = false;
    // No server has the turn any more.
    const forget = (): void => {
      pending.turnId.value = null;
      isRetry = true;
    };
    for (let requests = 0; ; ) {
      await this.#until(() => isOver() || this.#isWanted(pending), withdrawn);
      if (isRetry) {
        const isReady = source.mayRetry?.() ?? ((): boolean => true);
        await this.#until(() => isOver() || isReady(), withdrawn);
      }
      if (isOver()) return { kind: "gone" };
      const turn = pending.turnId.peek();
      const isRequest = source.request !== undefined && turn === null;
      if (turn === null && (!source.request || requests > MAX_REQUESTS)) return last;
      requests += Number(isRequest);
      pending.isSent.value = true;
      try {
        const outcome = isRequest
          ? await this.#listen(pending, (source.request as () => TurnStream)(), withdrawn)
          : await this.#listen(pending, source.read(turn as string, pending.last), withdrawn);
        if (outcome && !(source.request && isRetryable(outcome))) return outcome;
        if (outcome) forget();
        last = outcome ?? last;
      } catch (problem) {
        if (isOver()) return { kind: "gone" };
        if (isMissing(problem)) {
          if (!source.request || isRequest) return { kind: "failed", problem };
          forget(); // a retry learns its outcome
        } else if (problem instanceof errors.WaitEnded && source.request) {
          forget();
        } else if (isLost(problem)) {
          requests -= Number(isRequest);
          isRetry = isRequest;
          pending.isOffline.value = true;
          await this.#pause(withdrawn);
        } else return { kind: "failed", problem };
      }
    }
  }

  /** Apply its events until it ends. Null: the stream was released. */
  async #listen(
    pending: PendingTurn,
    stream: Stream<TurnEvent> | TurnStream,
    withdrawn: AbortSignal | undefined,
  ): Promise<TurnOutcome | null> {
    let isReleased = false;
    const head = "turnId" in stream ? stream : null;
    const poll = setInterval(() => identify(pending, head), ID_POLL_INTERVAL);
    const release = effect(() => {
      if (this.#isWanted(pending)) return;
      isReleased = true;
      stream.close();
    });
    const close = (): void => stream.close();
    for (const signal of [this.#ending, withdrawn]) signal?.addEventListener("abort", close);
    try {
      for await (const event of stream) {
        identify(pending, head);
        pending.apply(event);
        if (event.type === "turn.finished") return outcomeOf(event);
      }
      // A turn that was withdrawn before it began has no events; its sender retries.
      return isReleased ? null : { kind: "gone" };
    } finally {
      clearInterval(poll);
      release();
      for (const signal of [this.#ending, withdrawn]) signal?.removeEventListener("abort", close);
    }
  }

  /** Whether its stream is needed: until a server has accepted it, while it is visible and near the front of the queue,
   * and at its end. */
  #isWanted(pending: PendingTurn): boolean {
    if (pending.turnId.value === null || pending.isOver.value) return true;
    return this.#isShown.value && (pending.state.value !== "queued" || this.#before(pending) === 0);
  }

  async #until(condition: () => boolean, withdrawn: AbortSignal | undefined): Promise<void> {
    await new Promise<void>((resolve) => {
      let release = (): void => {};
      const done = (): void => {
        for (const signal of [this.#ending, withdrawn]) signal?.removeEventListener("abort", done);
        queueMicrotask(() => release());
        resolve();
      };
      for (const signal of [this.#ending, withdrawn]) signal?.addEventListener("abort", done);
      release = effect(() => {
        if (condition()) done();
      });
    });
  }

  async #pause(withdrawn: AbortSignal | undefined): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, RETRY_PAUSE);
      const now = (): void => {
        clearTimeout(timer);
        resolve();
      };
      addEventListener("online", now, { once: true });
      for (const signal of [this.#ending, withdrawn]) signal?.addEventListener("abort", now, { once: true });
    });
  }
}

/** Store the turn id as soon as the server reports it. */
function identify(pending: PendingTurn, stream: TurnStream | null): void {
  if (!stream?.turnId) return;
  pending.identify(stream.turnId);
  if (pending.state.peek() === "sending") pending.state.value = "queued";
}

function outcomeOf({ state, failure }: Extract<TurnEvent, { type: "turn.finished" }>): TurnOutcome {
  switch (state) {
    case "completed":
    case "kept":
      return { kind: "committed" };
    case "resumed":
    case "running":
      return { kind: "gone" };
    default:
      return { kind: "failed", problem: failure ?? { code: "turn_stopped", message: "" } };
  }
}

/** Whether a retry may do better. */
function isRetryable(outcome: TurnOutcome): boolean {
  if (outcome.kind !== "failed") return outcome.kind === "gone";
  const { code } = outcome.problem as { code: string };
  return PROCESS_FAILURES.test(code);
}

function isMissing(problem: unknown): boolean {
  return problem instanceof errors.TurnNotFound || problem instanceof errors.NotAdmitted;
}

function isLost(problem: unknown): boolean {
  return problem instanceof errors.TurnledgerError && problem.isRetryable;
}
