/** The events of a requested turn, and its answer. */

import { camel } from "./field-names.js";
import { errorOf } from "./error-of.js";
import { NotAdmitted } from "./errors.js";
import { withRemedy, followTurn, type FollowedTurn } from "./turn-follower.js";
import type { Answer, ChatInfo, StopOutcome, Item, OnStop, Turn, TurnEvent } from "./shapes.js";
import { Stream } from "./stream.js";
import { unlessAborted, type ApiRequest, type CallOptions, type UnsentMessage, type Wire } from "./wire.js";

export interface StopOptions extends CallOptions {
  /** Overrides the `onStop` of the turn. */
  policy?: OnStop;
}

/** The events of a turn, each once and in order, whatever happens to connections. */
export class TurnEvents extends Stream<TurnEvent> {
  readonly #followed: FollowedTurn;
  #release = (): void => {};

  constructor(wire: Wire, followed: FollowedTurn, signal: AbortSignal | undefined) {
    super((ending) => followTurn(wire, followed, ending), signal);
    this.#followed = followed;
  }

  /** Release the connection, of which browsers have few; readers wait. The turn continues, unless its `onDisconnect`
   * says otherwise. One that no server has begun is still requested. */
  pause(): void {
    this.#followed.paused ??= new Promise((resolve) => (this.#release = resolve));
    this.#followed.release?.();
  }

  /** Continue to read. */
  resume(): void {
    this.#followed.paused = undefined;
    this.#release();
  }
}

/** A turn that is requested when this is created. */
export class TurnStream extends TurnEvents {
  /** The id of the turn once known: when it begins or is queued. Null if it never was. */
  declare readonly begun: Promise<string | null>;
  readonly #wire: Wire;
  readonly #followed: FollowedTurn;
  readonly #signal: AbortSignal | undefined;

  constructor(
    wire: Wire,
    idempotencyKey: string,
    request: Promise<ApiRequest>,
    signal: AbortSignal | undefined,
    onUpdate?: (stream: TurnStream, isOver?: boolean) => void,
    isFresh?: boolean,
    beforeRetry?: () => Promise<void>,
  ) {
    const { outbox } = wire.options;
    let begin = (): void => {};
    const hasBegun = new Promise<void>((resolve) => (begin = resolve));
    const followed = newFollowedTurn({
      request: request.then(async (sent) => {
        const { body, headers } = sent as ApiRequest & UnsentMessage;
        await outbox?.record({ idempotencyKey, baseUrl: wire.base, body, headers });
        return sent;
      }),
      idempotencyKey,
      isFresh,
      beforeRetry,
      onUpdate: () => {
        begin();
        onUpdate?.(this, followed.isFinished);
        // Failing to remove an answered message must not hold back its answer: sent again, it is carried out once.
        if (followed.isFinished) (async () => outbox?.forget(idempotencyKey))().catch(() => {});
      },
    });
    super(wire, followed, signal);
    this.#wire = wire;
    this.#followed = followed;
    this.begun = hasBegun.then(() => followed.turn);
    this.#signal = signal;
  }

  /** The id of the turn; null until known, see `begun`. Another one after `turn.restarted`. */
  get turnId(): string | null {
    return this.#followed.turn;
  }

  /** The id of its chat; null until known, see `begun`. */
  get chatId(): string | null {
    return this.#followed.head?.get("x-conversation-id") ?? null;
  }

  /** The text that this stream has received, without what a `turn.restarted` or `turn.resumed` made void. */
  get text(): string {
    return this.#followed.text;
  }

  /** The same request under the same key is carried out once. */
  get idempotencyKey(): string {
    return this.#followed.idempotencyKey as string;
  }

  /** Stop the turn. Resolves when it is final; null if there was nothing left to stop. If the turn is queued, waits
   * until its id is known. Read on to learn how it ended. */
  async stop(options: StopOptions = {}): Promise<StopOutcome | null> {
    const turn = await unlessAborted(options.signal, this.begun);
    return turn ? stopAt(this.#wire, `turns/${this.turnId}`, options) : null;
  }

  /** Return the committed turn, whether its events were read or not. Throws the error of a failed turn. */
  async answer(): Promise<Answer> {
    if (this.isClosed) for await (const _ of followTurn(this.#wire, this.#followed, this.#signal));
    else while (!(await this.next()).done);
    if (this.problem) throw this.problem;
    const state = await this.#committed();
    if (!state.turn) throw errorOf("turn_failed", "The turn failed. Try again."); // or was undone since
    const committed = camel<Turn>(state.turn);
    const chat = camel<ChatInfo>(state.chat);
    const { head, isFresh } = this.#followed;
    return {
      turn: committed,
      chat,
      branch: state.branch,
      state: (head?.get("x-conversation-state") ?? "continued") as Answer["state"],
      // A fresh key cannot be replayed: it is the turn's own retry.
      isReplayed: !isFresh && head?.get("idempotency-replayed") === "true",
      text: textOf(committed.output),
    };
  }

  async #committed(): Promise<{ turn: object | null; chat: object; branch: string }> {
    try {
      return await this.#wire.json({ path: `/api/turns/${this.turnId}` }, this.#signal);
    } catch (problem) {
      if (!(problem instanceof NotAdmitted)) throw withRemedy(problem, this.#followed);
      // A token that may run turns, but not read, gets the answer to its own request.
      const request = (await this.#followed.request) as ApiRequest;
      const fields = { ...JSON.parse(request.body as string), stream: false };
      return this.#wire.json({ ...request, fields }, this.#signal);
    }
  }
}

export function newFollowedTurn(fields: Partial<FollowedTurn>): FollowedTurn {
  return { turn: null, last: 0, text: "", attempt: 1, ...fields };
}

export async function stopAt(
  wire: Wire,
  path: string,
  { policy, signal }: StopOptions,
  more: object = {},
  isOnce = false,
): Promise<StopOutcome | null> {
  const request = { path: `/api/${path}/stop`, fields: { ...more, policy }, isOnce };
  const outcome = await wire.json<StopOutcome | { state: null }>(request, signal);
  return outcome.state && outcome;
}

/** Return the assistant's text in the items of an answer. */
export function textOf(items: readonly Item[]): string {
  return items.map((item) => (item.role === "assistant" ? wordsOf(item) : "")).join("");
}

/** Return the text of a message. */
export function wordsOf({ type, content }: Item): string {
  if (type !== "message" || !content) return "";
  return typeof content === "string" ? content : content.map((part) => part.text || part["refusal"] || "").join("");
}
