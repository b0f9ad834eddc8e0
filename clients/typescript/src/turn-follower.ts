/** Follows a turn to its end, across lost connections and restarted servers. */

import { errorOf } from "./error-of.js";
import { NotAdmitted, TurnledgerError, TurnNotFound } from "./errors.js";
import { eventsOf } from "./server-sent-events.js";
import type { TurnEvent } from "./shapes.js";
import {
  errorIn,
  foreignServerError,
  noAnswerError,
  parseJson,
  RetryCount,
  unlessAborted,
  type ApiRequest,
  type Reply,
  type Wire,
} from "./wire.js";

/** Failures of the process that ran a turn, not of the model: the turn is requested again. */
const PROCESS_CODES = [
  "process_died",
  "cancelled",
  "gave_up",
  "not_committed",
  "task_ended",
  "shutting_down",
  "superseded",
  "ledger_closed",
  "admission_moved",
  "store_error",
  "store_unavailable",
  "store_full",
  "store_read_only",
  "outcome_unknown",
  "commit_outcome_unknown",
];

type Events<Outcome = void> = AsyncGenerator<TurnEvent, Outcome, undefined>;

/** A turn in progress, as far as known. */
export interface FollowedTurn {
  /** The request, the same each time; without it, the turn is only read. */
  request?: Promise<ApiRequest>;
  readonly idempotencyKey?: string;
  /** Whether the key was made for this turn, and never used before. */
  readonly isFresh?: boolean | undefined;
  /** Awaited before the turn is requested again, if no server has begun it. */
  readonly beforeRetry?: (() => Promise<void>) | undefined;
  turn: string | null;
  /** The headers of the first response. */
  head?: Headers;
  /** The number of the last event that was yielded. */
  last: number;
  text: string;
  /** The text before the last finished item. */
  kept?: string;
  attempt: number;
  /** Whether an event was yielded. */
  hasEvents?: boolean;
  /** Whether the attempt is over: request another one, or, if the turn is only read, read it from its beginning. */
  isVoid?: boolean;
  isFinished?: boolean;
  /** Resolves when reading continues. */
  paused?: Promise<void> | undefined;
  /** Releases the current connection. */
  release?: () => void;
  /** Called when the turn's id is known, when it changes, and at the end. */
  onUpdate?(): void;
}

/** Yield the events of the turn, each once and in order. If a turn that was requested here failed, throws its error
 * after the last event. */
export async function* followTurn(wire: Wire, followed: FollowedTurn, signal: AbortSignal | undefined): Events {
  const retryCount = new RetryCount(wire, signal);
  try {
    const request = await unlessAborted(signal, followed.request);
    while (!followed.isFinished) {
      const isRequesting = request && (!followed.turn || followed.isVoid);
      let reply: Reply | undefined;
      let isReleased = false;
      try {
        // A request that no server has received is sent even while held: only then can the turn be read later.
        if (!isRequesting) await unlessAborted(signal, followed.paused);
        else if (retryCount.count && !followed.turn) await unlessAborted(signal, followed.beforeRetry?.());
        reply = await wire.open(isRequesting ? request : readRequest(followed), signal);
        followed.release = () => {
          isReleased = true;
          reply?.close();
        };
        if (isRequesting && recordTurn(followed, reply.headers)) yield restarted(followed);
        if (followed.paused) followed.release();
        const isOver = yield* readEvents(reply, followed, retryCount, wire.retries.times);
        if (isOver || followed.isFinished) return;
        throw noAnswerError();
      } catch (problem) {
        if (isReleased && !followed.isFinished) continue;
        try {
          if (followed.isFinished) throw problem;
          await retryCount.again(isRequesting ? problem : asLostConnection(problem, followed));
        } catch (last) {
          throw withRemedy(last, followed);
        }
      } finally {
        reply?.close();
      }
    }
  } finally {
    followed.onUpdate?.();
  }
}

/** Yield the new events of one connection. Returns whether no more are to come. */
async function* readEvents(
  reply: Reply,
  followed: FollowedTurn,
  retryCount: RetryCount,
  times: number,
): Events<boolean> {
  const requestId = reply.headers.get("x-request-id");
  let isEmpty = true;
  for await (const { id, type, data } of eventsOf(reply.pieces)) {
    if (!data) continue;
    // A stream has no status: only the words of the error show that the token has ended.
    if (type === "error") {
      throw errorIn(data, { requestId }, /token/.test(data) ? "NotAdmitted" : "ServerUnavailable");
    }
    const number = Number(id);
    const event = parseJson(data) as TurnEvent;
    const isLast = type === "turn.finished";
    const isOld = !(number > followed.last);
    if (isOld && !(isLast && followed.hasEvents)) {
      followed.isVoid ||= !followed.request; // not an empty response, but one without new events
      continue;
    }
    if (number > followed.last + 1) throw noAnswerError();
    const failure = followed.request && failureOf(event, requestId);
    if (failure?.isRetryable && followed.attempt <= Math.min(times, 10)) {
      followed.isVoid = true;
      retryCount.count = followed.attempt - 1; // however many events came in between
      throw failure; // the next attempt replaces this end, which is not yielded
    }
    if (isOld) {
      // Its process died, and less was kept than was sent: start over with the kept part.
      followed.isVoid = true;
      yield restarted(followed);
      return false;
    }
    isEmpty = followed.isVoid = false;
    followed.last = number;
    followed.hasEvents = true;
    if (event.type === "text.delta") followed.text += event.text;
    if (type === "item.done") followed.kept = followed.text;
    if (type === "turn.resumed") followed.text = followed.kept ?? "";
    followed.isFinished = isLast;
    retryCount.progress();
    yield event;
    if (failure) throw failure;
    if (followed.isFinished) return false;
  }
  // A turn that died with its process sent more than was stored: there is no event to read on from.
  const { request, isVoid } = followed;
  followed.isVoid = isEmpty || !!request;
  // Withdrawn before it began, or read completely before. Browsers also take a response that broke off within its head
  // for an empty one, so read it once more.
  return isEmpty && !request && !!isVoid;
}

/** Return the problem; a failed read that a repeated request solves counts as a lost connection. */
function asLostConnection(problem: unknown, followed: FollowedTurn): unknown {
  // The store lost the turn in a power cut; or the token may run turns, but not read them.
  const isRecoverable = problem instanceof TurnNotFound || problem instanceof NotAdmitted;
  if (!followed.request || !isRecoverable) return problem;
  followed.isVoid = true;
  return noAnswerError(problem.message);
}

function readRequest(followed: FollowedTurn): ApiRequest {
  const headers = { "last-event-id": String(followed.isVoid && followed.hasEvents ? 0 : followed.last) };
  return { path: `/api/turns/${followed.turn}/events`, headers };
}

/** Void what was yielded, and return the event for it. */
function restarted(followed: FollowedTurn): TurnEvent {
  followed.last = 0;
  followed.text = followed.kept = "";
  return { type: "turn.restarted", turn: followed.turn as string, attempt: followed.attempt };
}

/** Note the turn in the headers of a response; return whether it differs from the one yielded so far. */
function recordTurn(followed: FollowedTurn, headers: Headers): boolean {
  const before = followed.turn;
  const turn = headers.get("x-turn-id");
  if (!turn || turn.length < 37) throw foreignServerError(headers); // a truncated id
  followed.head ??= headers;
  followed.turn = turn;
  followed.isVoid = false;
  followed.onUpdate?.();
  if (!before || before === turn) return false;
  followed.attempt += 1;
  return !!followed.last;
}

/** Return the error of a failed turn, if this is its last event. */
function failureOf(event: TurnEvent, requestId: string | null): TurnledgerError | undefined {
  if (event.type !== "turn.finished" || /completed|kept/.test(event.state)) return undefined;
  const { state, failure } = event;
  if (state === "discarded" || (state === "settled" && !failure)) {
    return errorOf("turn_stopped", "The turn was stopped. Send it again.", { requestId });
  }
  const { code = "turn_failed", message = "The turn failed. Try again." } = failure ?? {};
  const isRetryable = state === "resumed" || (state === "failed" && PROCESS_CODES.includes(code));
  const error = errorOf(code, message, { requestId, isRetryable }, "TurnFailed");
  error.message = message.replace(`${error.name}: `, "");
  return error;
}

/** Add the remedy to the problem. */
export function withRemedy(problem: unknown, followed: FollowedTurn): unknown {
  if (problem instanceof TurnledgerError && followed.idempotencyKey) {
    const { isRetryable, status } = problem;
    problem.idempotencyKey = followed.idempotencyKey;
    if (isRetryable && !followed.isFinished) {
      problem.message += " It may still run: repeat it with its idempotencyKey.";
    }
    // A final refusal is an outcome, too, if it refuses the turn and not the caller.
    const isRefused = !isRetryable && problem.details.error && /^(4(?!0[13])|5)/.test(`${status}`);
    if (isRefused) followed.isFinished = true;
  }
  return problem;
}
