/** A server that answers by a script, and time that passes at once. */

import assert from "node:assert/strict";

import { Client, type ClientOptions } from "../src/index.js";

export const SILENCE = 45_000;
export const CHAT = "conv_01a1e29c3b7e74b1824da121735f1ddd";
export const TURN = "turn_01a1e29c3b7e7d27a33304c25e11c428";
export const OTHER_TURN = "turn_01a1e29c3b807c3685c9ed1e24fc766d";
export const BRANCH = "branch_01a1e29c3b7e772b866fe7c064a78fb4";

/** How a stream ends: well, with the connection, by silence that is noticed, or not at all. */
export type Ending = "end" | "cut" | "silence" | "quiet";

export interface Scripted {
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly pieces?: readonly (string | Uint8Array)[];
  readonly ending?: Ending;
  /** What happens while it is answered. */
  readonly meanwhile?: () => void;
}

export interface Heard {
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body: any;
}

/** Nobody is there. */
export const REFUSED = "refused";

export class ScriptedServer {
  /** What was asked, in order. */
  readonly heard: Heard[] = [];
  /** How long the client paused, in order. */
  readonly pauses: number[] = [];
  /** How long it would have waited for the server, in order. */
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

  /** What has a client talk to this one, and wait by its clock. */
  get options(): ClientOptions {
    return {
      model: "demo",
      fetch: (url, request) => this.#fetch(url, request),
      timer: (milliseconds, then) => this.#timer(milliseconds, then),
      random: () => 1,
      now: () => this.now,
    };
  }

  /** The one thing that was asked. */
  get only(): Heard {
    assert.equal(this.heard.length, 1);
    return this.heard[0] as Heard;
  }

  /** Check that all that is scripted was asked for, and that nothing is left. */
  done(): void {
    assert.equal(this.#script.length, 0, "not all of the script was played");
    assert.equal(this.#surplus, 0, "more was asked than is scripted");
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
    const said = typeof body === "string" && headers["content-type"] === "application/json" ? JSON.parse(body) : body;
    this.heard.push({ method, path: url.replace("https://server.test", ""), headers, body: said });
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
      headers: { "content-type": "application/json", "x-request-id": `req_${this.heard.length}`, ...next.headers },
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

/** An answer that is a JSON value. */
export function json(value: unknown, status = 200, headers: Record<string, string> = {}): Scripted {
  return { status, headers, pieces: [JSON.stringify(value)] };
}

/** An answer that is an error. */
export function error(status: number, code: string, headers: Record<string, string> = {}): Scripted {
  const type = status === 429 ? "rate_limit_error" : status < 500 ? "invalid_request_error" : "server_error";
  return json({ error: { message: `It is ${code}.`, type, param: null, code } }, status, headers);
}

/** The events of a turn, numbered from `first`, as a stream. */
export function events(errorIn: readonly object[], ending: Ending = "end", first = 1, turn = TURN): Scripted {
  const pieces = errorIn.map((event, place) => sent(first + place, event));
  const headers = { "x-turn-id": turn, "x-conversation-id": CHAT, "x-conversation-state": "created" };
  return { headers, pieces, ending };
}

export function sent(number: number, event: object): string {
  const { type } = event as { type: string };
  return `id: ${number}\nevent: ${type}\ndata: ${JSON.stringify({ ...event, number })}\n\n`;
}

export const STARTED = { type: "turn.started" };
export const text = (said: string): object => ({ type: "text.delta", text: said });
export const finished = (state = "completed", failure: object | null = null): object => ({
  type: "turn.finished",
  state,
  failure,
});
export const failed = (code: string): object =>
  finished("failed", { code, message: `it is ${code}` });

/** Where a turn stands that was committed. */
export function standing(said: string, id = TURN, kind = "completed"): Scripted {
  const output = [{ type: "message", role: "assistant", content: [{ type: "output_text", text: said }] }];
  const turn = { id, number: 1, kind, parent: null, created_at: 1, committed_at: 2, input: [], output, hidden: [], details: {} };
  return json({ turn, state: "completed", failure: null, chat: CHAT_INFO, branch: BRANCH });
}

export const CHAT_INFO = { id: CHAT, conversation_key: null, scope: null, title: "T", turn_count: 1, revision: 1 };

/** All that an iteration gives. */
export async function all<Told>(given: AsyncIterable<Told>): Promise<Told[]> {
  const errorIn: Told[] = [];
  for await (const each of given) errorIn.push(each);
  return errorIn;
}
