/** A chat that is not stored: it lives only in the memory of this program. */

import { eventsOf } from "./server-sent-events.js";
import type { Item } from "./shapes.js";
import { Stream } from "./stream.js";
import {
  chain,
  parseJson,
  foreignServerError,
  errorIn,
  RetryCount,
  noAnswerError,
  unlessAborted,
  Wire,
  type ApiRequest,
  type CallOptions,
  type ClientOptions,
  type Reply,
} from "./wire.js";

/** Milliseconds. There are no heartbeats while a model thinks; the server gives up on it sooner than this. */
const SILENCE = 600_000;

export interface UnkeptOptions extends ClientOptions {
  /** The scope of the chat: a server may have other rules for it, and a token may be limited to it. */
  scope?: string | undefined;
}

/** A message of the chat completions API. */
export interface UnkeptMessage {
  readonly role: "user" | "assistant" | "tool";
  readonly content: string | readonly Readonly<Record<string, unknown>>[] | null;
  /** Tool calls of the assistant. */
  readonly tool_calls?: readonly UnkeptCall[];
  /** For a result: the id of its call. */
  readonly tool_call_id?: string;
}

export interface UnkeptCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

export interface UnkeptSendOptions extends CallOptions {
  model?: string | undefined;
  /** Apply from this message on; an empty text ends the current ones. */
  instructions?: string | undefined;
  /** Further fields for the model: `temperature`, `tools`, … */
  settings?: Readonly<Record<string, unknown>> | undefined;
  /** When it is stopped: `keep` adds the message and the answer so far, if any, to `messages`; by default neither
   * stays. */
  onStop?: "keep" | "discard" | undefined;
}

/** Events of an answer. */
export type UnkeptEvent =
  | { readonly type: "text.delta"; readonly text: string }
  | { readonly type: "reasoning.delta"; readonly text: string }
  /** A complete call of one of your tools: `type` is `function_call`, with `call_id`, `name` and `arguments`. */
  | { readonly type: "item.done"; readonly item: Item }
  /** The answer is complete, and in `messages`. */
  | {
      readonly type: "turn.finished";
      /** The model's finish reason: `stop`, `length`, `tool_calls`, … */
      readonly reason: string;
      /** Null if the model does not report it. */
      readonly usage: Readonly<Record<string, unknown>> | null;
    };

type Events = AsyncGenerator<UnkeptEvent, void, undefined>;

interface Chunk {
  readonly error?: object;
  readonly usage?: Readonly<Record<string, unknown>> | null;
  readonly choices?: readonly ({
    readonly delta?: {
      readonly content?: string | null;
      readonly refusal?: string | null;
      readonly reasoning?: string | null;
      readonly reasoning_content?: string | null;
      readonly tool_calls?: readonly (CallPiece | null)[] | null;
    } | null;
    readonly finish_reason?: string | null;
  } | null)[] | null;
}

interface CallPiece {
  readonly index?: number | null;
  readonly id?: string | null;
  readonly function?: { readonly name?: string | null; readonly arguments?: string | null } | null;
}

/** Sends all of its messages each time. It ends with this object, and no server stores it. */
export class UnkeptChat {
  readonly #wire: Wire;
  readonly #scope: string | undefined;
  readonly #open = new Set<Stream<UnkeptEvent>>();
  #messages: readonly UnkeptMessage[] = [];
  #instructions = "";
  /** Settles with the last message that was sent. */
  #last: Promise<unknown> = Promise.resolve();

  /** `baseUrl`: the server's address; empty: the origin of the page. Throws InvalidInput for an invalid one. */
  constructor(baseUrl = "http://127.0.0.1:8383", options: UnkeptOptions = {}) {
    const timeouts = { silence: SILENCE, ...options.timeouts };
    this.#wire = new Wire(baseUrl, { ...options, timeouts });
    this.#scope = options.scope;
  }

  /** The messages, without the instructions. A new list after each change. */
  get messages(): readonly UnkeptMessage[] {
    return this.#messages;
  }

  /** The current ones, or empty. */
  get instructions(): string {
    return this.#instructions;
  }

  /** Send a text or messages, also results of tools. One is answered at a time: another waits until this one was read
   * to its end or closed. Closing it stops it. If it fails or is stopped, `messages` are as before. A request without
   * an answer is repeated. Once the answer has begun, it cannot be resumed, and a lost connection throws
   * ServerUnavailable. */
  send(input: string | readonly UnkeptMessage[], options: UnkeptSendOptions = {}): Stream<UnkeptEvent> {
    const added: readonly UnkeptMessage[] = typeof input === "string" ? [{ role: "user", content: input }] : input;
    const partial = new PartialAnswer();
    const before = this.#last;
    let isOver: (() => void) | undefined;
    this.#last = Promise.all([before, new Promise<void>((resolve) => (isOver = resolve))]);
    const settle = (end: "whole" | "stopped" | "failed"): void => {
      const isKept = end === "stopped" && options.onStop === "keep" && partial.text;
      if (isOver && (end === "whole" || isKept)) {
        this.#messages = [...this.#before(added), ...added, partial.message(end === "whole")];
        this.#instructions = options.instructions ?? this.#instructions;
      }
      isOver?.();
      isOver = undefined;
    };
    const makeRequest = (ending: AbortSignal): Promise<ApiRequest> =>
      unlessAborted(ending, before.then(() => this.#makeRequest(added, options)));
    const answer = (request: ApiRequest, ending: AbortSignal): Events =>
      this.#answer(request, partial, ending, () => settle("whole"));
    const stream = new Stream(async function* (ending): Events {
      // At once, not at the next read: the caller may stop it and send the next one right away.
      chain(ending, () => settle("stopped"));
      try {
        yield* answer(await makeRequest(ending), ending);
      } finally {
        settle("failed");
      }
    }, options.signal);
    this.#open.add(stream);
    void this.#last.then(() => this.#open.delete(stream));
    return stream;
  }

  /** Clear the messages. Stops the current answer, and keeps nothing of it. */
  forget(): void {
    for (const stream of this.#open) stream.close();
    this.#messages = [];
    this.#instructions = "";
  }

  async #makeRequest(added: readonly UnkeptMessage[], options: UnkeptSendOptions): Promise<ApiRequest> {
    const { model, instructions = this.#instructions, settings } = options;
    const system = instructions ? [{ role: "system", content: instructions }] : [];
    const shown = [...this.#before(added), ...added].filter((message) => !isEmptyAnswer(message));
    const messages = [...system, ...shown];
    const body = { ...settings, model: model ?? (await this.#wire.model()), messages, stream: true };
    const scope = this.#scope && encodeURIComponent(this.#scope);
    const headers = { "x-conversation-keep": "no", "x-conversation-scope": scope };
    return { path: "/v1/chat/completions", headers, body: JSON.stringify(body) };
  }

  /** Return the messages so far. Open calls get a placeholder result: models refuse them otherwise. */
  #before(added: readonly UnkeptMessage[]): readonly UnkeptMessage[] {
    const calls = this.#messages.at(-1)?.tool_calls ?? [];
    const open = calls.filter(({ id }) => !added.some((each) => each.tool_call_id === id));
    const answers = open.map(({ id }) => ({ role: "tool", content: "Not answered.", tool_call_id: id }) as const);
    return [...this.#messages, ...answers];
  }

  async *#answer(
    request: ApiRequest,
    partial: PartialAnswer,
    signal: AbortSignal,
    onComplete: () => void,
  ): Events {
    const retryCount = new RetryCount(this.#wire, signal);
    for (;;) {
      let reply: Reply | undefined;
      try {
        reply = await this.#wire.open(request, signal);
        const { headers, pieces } = reply;
        // A server that does not confirm it may have stored the chat.
        if (headers.get("x-conversation-state") !== "unkept") throw foreignServerError(headers);
        for await (const { data } of eventsOf(pieces)) {
          if (data === "[DONE]") {
            const last = partial.finished();
            onComplete();
            return yield* last;
          }
          const chunk = parseJson(data || "{}") as Chunk | null;
          if (chunk?.error) throw errorIn(data, { requestId: headers.get("x-request-id") });
          yield* partial.add(chunk);
        }
        throw noAnswerError();
      } catch (problem) {
        if (partial.hasBegun) throw problem;
        await retryCount.again(problem);
      } finally {
        reply?.close();
      }
    }
  }
}

/** Many models refuse an empty answer in the history. */
function isEmptyAnswer({ role, content, tool_calls }: UnkeptMessage): boolean {
  return role === "assistant" && !content && !tool_calls;
}

/** One answer, as far as it was received. */
class PartialAnswer {
  text = "";
  hasBegun = false;
  #reason = "";
  #usage: Chunk["usage"];
  /** By the model's index, which may be any number: an array could exceed the memory. */
  readonly #calls = new Map<unknown, { id: string; name: string; arguments: string }>();

  /** Add a chunk, and yield its events. */
  *add(chunk: Chunk | null): Generator<UnkeptEvent> {
    this.#usage = chunk?.usage ?? this.#usage;
    for (const choice of chunk?.choices ?? []) {
      const delta = choice?.delta ?? {};
      this.#reason = choice?.finish_reason ?? this.#reason;
      for (const piece of delta.tool_calls ?? []) this.#call(piece ?? {});
      const reasoning = delta.reasoning_content || delta.reasoning;
      const text = (delta.content ?? "") + (delta.refusal ?? "");
      this.text += text;
      this.hasBegun ||= !!(text || reasoning || delta.tool_calls);
      if (reasoning) yield { type: "reasoning.delta", text: reasoning };
      if (text) yield { type: "text.delta", text };
    }
  }

  #call({ index, id, function: named }: CallPiece): void {
    const key = index ?? 0;
    const call = this.#calls.get(key) ?? { id: "", name: "", arguments: "" };
    this.#calls.set(key, call);
    call.id ||= id ?? "";
    call.name ||= named?.name ?? "";
    call.arguments += named?.arguments ?? "";
  }

  /** Return the last events. */
  finished(): UnkeptEvent[] {
    const calls = this.#completeCalls();
    const items = calls.map((call): UnkeptEvent => {
      const { id, function: named } = call;
      return { type: "item.done", item: { type: "function_call", call_id: id, ...named } };
    });
    return [...items, { type: "turn.finished", reason: this.#reason, usage: this.#usage ?? null }];
  }

  /** Return the message for the next request. Calls of a stopped answer may be incomplete, and are left out. */
  message(isComplete: boolean): UnkeptMessage {
    const calls = isComplete ? this.#completeCalls() : [];
    return calls.length
      ? { role: "assistant", content: this.text || null, tool_calls: calls }
      : { role: "assistant", content: this.text };
  }

  #completeCalls(): UnkeptCall[] {
    return [...this.#calls.values()].map(({ id, ...named }) => ({ id, type: "function" as const, function: named }));
  }
}
