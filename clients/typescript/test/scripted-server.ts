/** A server that responds by a script, and a clock that moves at once. */

import assert from "node:assert/strict";

import { Client, type ClientOptions } from "../src/index.js";

export const SILENCE = 45_000;
export const CHAT = "conv_01a1e29c3b7e74b1824da121735f1ddd";
export const TURN = "turn_01a1e29c3b7e7d27a33304c25e11c428";
export const OTHER_TURN = "turn_01a1e29c3b807c3685c9ed1e24fc766d";
export const BRANCH = "branch_01a1e29c3b7e772b866fe7c064a78fb4";

/** How a stream ends: whole, with its connection, by a silence until the timeout, or not at all. */
export type Ending = "end" | "cut" | "silence" | "quiet";

export interface Scripted {
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly pieces?: readonly (string | Uint8Array)[];
  readonly ending?: Ending;
  /** Called before the response begins. */
  readonly meanwhile?: () => void;
}

export interface ReceivedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body: any;
}

/** The connection is refused. */
export const REFUSED = "refused";

export class ScriptedServer {
  /** In the order in which they arrived. */
  readonly requests: ReceivedRequest[] = [];
  /** Pauses of the client, in order. */
  readonly pauses: number[] = [];
  /** Timeouts of the client, in order. */
  readonly waits: number[] = [];
  now = 0;
  #surplus = 0;
  readonly #open = new Set<AbortSignal>();
  readonly #script: (Scripted | typeof REFUSED)[];
  readonly #silences = new Set<() => void>();

  constructor(...script: (Scripted | typeof REFUSED)[]) {
    this.#script = script;
  }

  client(options: ClientOptions = {}): Client {
    return new Client("https://server.test/", { ...this.options, ...options });
  }

  /** The options of a client that uses this server and its clock. */
  get options(): ClientOptions {
    return {
      model: "demo",
      fetch: (url, request) => this.#fetch(url, request),
      timer: (milliseconds, then) => this.#timer(milliseconds, then),
      random: () => 1,
      now: () => this.now,
    };
  }

  /** The only request. */
  get only(): ReceivedRequest {
    assert.equal(this.requests.length, 1);
    return this.requests[0] as ReceivedRequest;
  }

  /** Check that every scripted response was requested, and that nothing is open. */
  done(): void {
    assert.equal(this.#script.length, 0, "not all of the script was played");
    assert.equal(this.#surplus, 0, "a request came that is not scripted");
    this.isAtRest();
  }

  /** Check that no timer and no connection is left. */
  isAtRest(): void {
    assert.equal(this.#silences.size, 0, "a timer is left");
    assert.equal(this.#open.size, 0, "a connection is left open");
  }

  #timer(milliseconds: number, then: () => void): () => void {
    if (milliseconds >= SILENCE) {
      this.waits.push(milliseconds);
      this.#silences.add(then);
      return () => this.#silences.delete(then);
    }
    this.pauses.push(milliseconds);
    let isOver = false;
    queueMicrotask(() => {
      if (isOver) return;
      this.now += milliseconds;
      then();
    });
    return () => (isOver = true);
  }

  #fetch(url: string, request: RequestInit): Promise<Response> {
    const { method = "GET", body } = request;
    const headers = Object.fromEntries(new Headers(request.headers));
    const parsed = typeof body === "string" && headers["content-type"] === "application/json" ? JSON.parse(body) : body;
    this.requests.push({ method, path: url.replace("https://server.test", ""), headers, body: parsed });
    const next = this.#script.shift();
    if (next === undefined) {
      this.#surplus += 1;
      throw new Error(`nothing is scripted for ${method} ${url}`);
    }
    if (next === REFUSED) return Promise.reject(new TypeError("fetch failed"));
    next.meanwhile?.();
    if (request.signal?.aborted) return Promise.reject(request.signal.reason);
    const answer = new Response(this.#stream(next, request.signal as AbortSignal), {
      status: next.status ?? 200,
      headers: { "content-type": "application/json", "x-request-id": `req_${this.requests.length}`, ...next.headers },
    });
    return Promise.resolve(answer);
  }

  #stream({ pieces = [], ending = "end" }: Scripted, signal: AbortSignal): ReadableStream {
    const left = [...pieces];
    const encoder = new TextEncoder();
    const over = (): boolean => this.#open.delete(signal);
    this.#open.add(signal);
    const start = (controller: ReadableStreamDefaultController): void =>
      signal.addEventListener("abort", () => {
        over();
        controller.error(signal.reason);
      });
    const pull = (controller: ReadableStreamDefaultController): void | Promise<void> => {
      const piece = left.shift();
      if (piece !== undefined) controller.enqueue(typeof piece === "string" ? encoder.encode(piece) : piece);
      else if (ending === "quiet") return new Promise(() => {});
      else if (ending === "silence") return new Promise(() => setTimeout(() => this.#beSilent()));
      else if (over() && ending === "end") controller.close();
      else controller.error(new TypeError("terminated"));
    };
    return new ReadableStream({ start, pull }, { highWaterMark: 0 });
  }

  #beSilent(): void {
    for (const then of [...this.#silences]) then();
    this.#silences.clear();
  }
}

/** A response with a JSON value. */
export function json(value: unknown, status = 200, headers: Record<string, string> = {}): Scripted {
  return { status, headers, pieces: [JSON.stringify(value)] };
}

/** An error response. */
export function error(status: number, code: string, headers: Record<string, string> = {}): Scripted {
  const type = status === 429 ? "rate_limit_error" : status < 500 ? "invalid_request_error" : "server_error";
  return json({ error: { message: `It is ${code}.`, type, param: null, code } }, status, headers);
}

/** The events of a turn, numbered from `first`, as a stream. */
export function events(all: readonly object[], ending: Ending = "end", first = 1, turn = TURN): Scripted {
  const pieces = all.map((event, place) => sent(first + place, event));
  const headers = { "x-turn-id": turn, "x-conversation-id": CHAT, "x-conversation-state": "created" };
  return { headers, pieces, ending };
}

export function sent(number: number, event: object): string {
  const { type } = event as { type: string };
  return `id: ${number}\nevent: ${type}\ndata: ${JSON.stringify({ ...event, number })}\n\n`;
}

export const STARTED = { type: "turn.started" };
export const text = (delta: string): object => ({ type: "text.delta", text: delta });
export const finished = (state = "completed", failure: object | null = null): object => ({
  type: "turn.finished",
  state,
  failure,
});
export const failed = (code: string): object =>
  finished("failed", { code, message: `it is ${code}` });

/** The state of a committed turn. */
export function committed(answer: string, id = TURN, kind = "completed"): Scripted {
  const output = [{ type: "message", role: "assistant", content: [{ type: "output_text", text: answer }] }];
  const turn = { id, number: 1, kind, parent: null, created_at: 1, committed_at: 2, input: [], output, hidden: [], details: {} };
  return json({ turn, state: "completed", failure: null, chat: CHAT_INFO, branch: BRANCH });
}

export const CHAT_INFO = { id: CHAT, conversation_key: null, scope: null, title: "T", turn_count: 1, revision: 1 };

/** Everything that an iteration yields. */
export async function all<Each>(iteration: AsyncIterable<Each>): Promise<Each[]> {
  const yielded: Each[] = [];
  for await (const each of iteration) yielded.push(each);
  return yielded;
}
