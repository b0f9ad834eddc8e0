/** A turn that was asked for, as it is told. */

import { camel } from "./casing.js";
import { heal, type Followed } from "./healing.js";
import type { Answer, ChatInfo, Ended, Item, OnStop, Turn, TurnEvent } from "./shapes.js";
import { Stream } from "./stream.js";
import type { Asked, CallOptions, Wire } from "./wire.js";

/** Its events, each once and in order, whatever happens to connections. The turn was asked for when this was made. */
export class TurnStream extends Stream<TurnEvent> {
  readonly #wire: Wire;
  readonly #followed: Followed;
  readonly #isKnown: Promise<void>;
  #problem: unknown;

  constructor(
    wire: Wire,
    idempotencyKey: string,
    asked: Promise<Asked>,
    signal: AbortSignal | undefined,
    found: (chat: string) => void,
  ) {
    let known = (): void => {};
    const isKnown = new Promise<void>((resolve) => (known = resolve));
    const followed = followedAs({
      asked,
      idempotencyKey,
      known: () => {
        known();
        if (followed.chat) found(followed.chat);
      },
    });
    super((ending) => heal(wire, followed, ending), signal, true);
    this.#wire = wire;
    this.#followed = followed;
    this.#isKnown = isKnown;
  }

  /** The id of the turn; null until the server has begun it. After `turn.restarted` it is another. */
  get turnId(): string | null {
    return this.#followed.turn;
  }

  /** The id of its chat; null until the server has begun the turn. */
  get chatId(): string | null {
    return this.#followed.chat;
  }

  /** What was said so far. */
  get text(): string {
    return this.#followed.text;
  }

  /** The name of this request. Who sends it again under the same name is told of the same turn. */
  get idempotencyKey(): string {
    return this.#followed.idempotencyKey as string;
  }

  override async next(): Promise<IteratorResult<TurnEvent, undefined>> {
    try {
      return await super.next();
    } catch (problem) {
      this.#problem = problem;
      throw problem;
    }
  }

  /** Stop the turn. Resolves when it is final; null if there was nothing to stop any more. Of a turn that still waits
   * for others, it waits until that has begun. Read on to hear how it ended. */
  async stop(options: CallOptions & { policy?: OnStop } = {}): Promise<Ended | null> {
    await this.#isKnown;
    return this.turnId === null ? null : stopTurn(this.#wire, this.turnId, options);
  }

  /** The turn once it is committed, whether its events were read or not. Throws how it failed. */
  async answer(): Promise<Answer> {
    if (this.isClosed) for await (const _ of heal(this.#wire, this.#followed, new AbortController().signal));
    else while (!(await this.next()).done);
    if (this.#problem) throw this.#problem;
    const { turn, state, isReplayed } = this.#followed;
    const path = `/api/turns/${turn}`;
    const told = await this.#wire.json<{ turn: object; chat: object; branch: string }>({ method: "GET", path });
    const committed = camel<Turn>(told.turn);
    const chat = camel<ChatInfo>(told.chat);
    return { turn: committed, chat, branch: told.branch, state, isReplayed, text: textOf(committed.output) };
  }
}

/** What is known of a turn that nobody has told of yet. */
export function followedAs(given: Partial<Followed>): Followed {
  return {
    turn: null,
    chat: null,
    state: "continued",
    isReplayed: false,
    last: 0,
    text: "",
    attempt: 1,
    isVoid: false,
    isFinished: false,
    known: () => {},
    ...given,
  };
}

/** Stop a turn by its id. */
export async function stopTurn(
  wire: Wire,
  turn: string,
  { policy, signal }: CallOptions & { policy?: OnStop | undefined },
): Promise<Ended | null> {
  return endOf(await wire.json(stopping(`/api/turns/${turn}/stop`, policy), signal));
}

export function stopping(path: string, policy: OnStop | undefined): Asked {
  return { method: "POST", path, body: JSON.stringify({ policy }) };
}

export function endOf(told: Ended | { state: null }): Ended | null {
  return told.state === null ? null : told;
}

/** What the assistant says in the items of an answer. */
export function textOf(items: readonly Item[]): string {
  return items.map((item) => (item.role === "assistant" ? wordsOf(item) : "")).join("");
}

/** What a message says. */
export function wordsOf({ type, content }: Item): string {
  if (type !== "message" || !content) return "";
  return typeof content === "string" ? content : content.map((part) => part.text || part["refusal"] || "").join("");
}
