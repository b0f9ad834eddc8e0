/** Follow a turn to its end, through lost connections and restarted servers. */

import { errorOf } from "./error-of.js";
import { NotAdmitted, TurnledgerError, TurnNotFound } from "./errors.js";
import { eventsOf } from "./server-sent-events.js";
import type { TurnEvent } from "./shapes.js";
import { parsed, stranger, told, Tries, unanswered, unless, type Asked, type Reply, type Wire } from "./wire.js";

/** Failures of the process that ran a turn. They are no word of the model's, so the turn is asked for again. */
const OF_THE_PROCESS = [
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

/** A turn on its way, as far as it is known. */
export interface FollowedTurn {
  /** How it is asked for, the same each time; without it, the turn is only read. */
  asked?: Promise<Asked>;
  readonly idempotencyKey?: string;
  /** Whether that was made for it, so that nobody has asked by it before. */
  readonly isFresh?: boolean | undefined;
  /** Waited for before it is asked for once more, if no server has begun it. */
  readonly beforeRetry?: (() => Promise<void>) | undefined;
  turn: string | null;
  /** The head of the answer that told of it first. */
  head?: Headers;
  /** The number of the last event that was given out. */
  last: number;
  text: string;
  attempt: number;
  /** Whether an event was given out. */
  isHeard?: boolean;
  /** Whether the attempt is over and another one has to be asked for; or, by who only reads, sought from its
   * beginning. */
  isVoid?: boolean;
  isFinished?: boolean;
  /** Ends when it is to be read on: nobody reads it meanwhile. */
  held?: Promise<void> | undefined;
  /** Lets go of the connection by which it is read. */
  letGo?: () => void;
  /** Called when the turn is known, whenever it is another, and at the end. */
  known?(): void;
}

/** The events of the turn, each once and in order. Ends behind the last one. Of a turn that was asked for here, throws
 * how it failed, behind the event that tells so. */
export async function* followTurn(wire: Wire, followed: FollowedTurn, signal: AbortSignal | undefined): Events {
  const tries = new Tries(wire, signal);
  try {
    const asked = await unless(signal, followed.asked);
    while (!followed.isFinished) {
      const isAsking = asked && (!followed.turn || followed.isVoid);
      let reply: Reply | undefined;
      let isLetGo = false;
      try {
        // What nobody has yet is sent: only then can it be read later.
        if (!isAsking) await unless(signal, followed.held);
        else if (tries.count && !followed.turn) await unless(signal, followed.beforeRetry?.());
        reply = await wire.open(isAsking ? asked : readRequest(followed), signal);
        followed.letGo = () => {
          isLetGo = true;
          reply?.close();
        };
        if (isAsking && note(followed, reply.headers)) yield restarted(followed);
        if (followed.held) followed.letGo();
        const isOver = yield* readEvents(reply, followed, tries, wire.retries.times);
        if (isOver || followed.isFinished) return;
        throw unanswered();
      } catch (problem) {
        if (isLetGo && !followed.isFinished) continue;
        try {
          if (followed.isFinished) throw problem;
          await tries.again(isAsking ? problem : asLostConnection(problem, followed));
        } catch (last) {
          throw withRemedy(last, followed);
        }
      } finally {
        reply?.close();
      }
    }
  } finally {
    followed.known?.();
  }
}

/** The events of one connection that were not given out before. Returns whether there are no more to wait for. */
async function* readEvents(reply: Reply, followed: FollowedTurn, tries: Tries, times: number): Events<boolean> {
  const requestId = reply.headers.get("x-request-id");
  let isEmpty = true;
  for await (const { id, type, data } of eventsOf(reply.pieces)) {
    if (!data) continue;
    // There is no status any more: whose token has ended is told so in words.
    if (type === "error") throw told(data, { requestId }, /token/.test(data) ? "NotAdmitted" : "ServerUnavailable");
    const number = Number(id);
    const event = parsed(data) as TurnEvent;
    const isLast = event.type === "turn.finished";
    const isOld = !(number > followed.last);
    if (isOld && !(isLast && followed.isHeard)) {
      followed.isVoid ||= !followed.asked; // no empty answer, but one with nothing new
      continue;
    }
    if (number > followed.last + 1) throw unanswered();
    const failure = followed.asked && failureOf(event, requestId);
    if (failure?.isRetryable && followed.attempt <= Math.min(times, 10)) {
      followed.isVoid = true;
      tries.count = followed.attempt - 1; // however much was told in between
      throw failure; // and what comes next takes its place: nobody is told of this end
    }
    if (isOld) {
      // Its process died, and less of it was kept than was told: that is told from the beginning.
      followed.isVoid = true;
      yield restarted(followed);
      return false;
    }
    isEmpty = followed.isVoid = false;
    followed.last = number;
    followed.isHeard = true;
    if (event.type === "text.delta") followed.text += event.text;
    followed.isFinished = isLast;
    tries.progress();
    yield event;
    if (failure) throw failure;
    if (followed.isFinished) return false;
  }
  // A turn that died with its process told more than was written down: reading on finds nothing there.
  const { asked, isVoid } = followed;
  followed.isVoid = isEmpty || !!asked;
  // It was withdrawn before it began, or all of it was heard before. Browsers take an answer that broke off within its
  // head for an empty one, too: it is read once more.
  return isEmpty && !asked && !!isVoid;
}

/** The problem; one of reading that asking again mends is as good as a lost connection. */
function asLostConnection(problem: unknown, followed: FollowedTurn): unknown {
  // Its store lost the turn together with its power; or this caller may run turns, and not read them.
  const isMendable = problem instanceof TurnNotFound || problem instanceof NotAdmitted;
  if (!followed.asked || !isMendable) return problem;
  followed.isVoid = true;
  return unanswered(problem.message);
}

function readRequest(followed: FollowedTurn): Asked {
  const headers = { "last-event-id": String(followed.isVoid && followed.isHeard ? 0 : followed.last) };
  return { path: `/api/turns/${followed.turn}/events`, headers };
}

/** Forget what was told, and tell that. */
function restarted(followed: FollowedTurn): TurnEvent {
  followed.last = 0;
  followed.text = "";
  return { type: "turn.restarted", turn: followed.turn as string, attempt: followed.attempt };
}

/** Note what the head of an answer says of the turn. Tell whether it is another than what was told of. */
function note(followed: FollowedTurn, headers: Headers): boolean {
  const before = followed.turn;
  const turn = headers.get("x-turn-id");
  if (!turn || turn.length < 37) throw stranger(headers); // a part of an id is none
  followed.head ??= headers;
  followed.turn = turn;
  followed.isVoid = false;
  followed.known?.();
  if (!before || before === followed.turn) return false;
  followed.attempt += 1;
  return followed.last > 0;
}

/** How the turn failed, if this is the event that tells so. */
function failureOf(event: TurnEvent, requestId: string | null): TurnledgerError | undefined {
  if (event.type !== "turn.finished" || /^(completed|kept)$/.test(event.state)) return undefined;
  const { state, failure } = event;
  if (state === "discarded" || (state === "settled" && !failure)) {
    return errorOf("turn_stopped", "The turn was stopped.", { requestId });
  }
  const { code = "turn_failed", message = "The turn failed." } = failure ?? {};
  const isRetryable = state === "resumed" || (state === "failed" && OF_THE_PROCESS.includes(code));
  const error = errorOf(code, message, { requestId, isRetryable }, "TurnFailed");
  error.message = message.replace(`${error.name}: `, "");
  return error;
}

/** The problem, with what can be done about it. */
export function withRemedy(problem: unknown, followed: FollowedTurn): unknown {
  if (problem instanceof TurnledgerError && followed.idempotencyKey) {
    const { isRetryable, status } = problem;
    problem.idempotencyKey = followed.idempotencyKey;
    if (isRetryable && !followed.isFinished) {
      problem.message += " The turn may still run: send it again under its idempotencyKey.";
    }
    // Refused for good: that is an end, too, if it is the turn that was refused, and not who asks for it.
    const isRefused = !isRetryable && problem.details.error && /^(4(?!0[13])|5)/.test(`${status}`);
    if (isRefused) followed.isFinished = true;
  }
  return problem;
}
