/** Requests and their answers: one try, and as many as it takes. */

import { camel } from "./field-names.js";
import { errorOf, type ErrorName } from "./error-of.js";
import { ServerUnavailable, TurnledgerError, type ErrorDetails, type ErrorFacts } from "./errors.js";

/** How long to wait, in milliseconds. */
export interface Timeouts {
  /** For the next byte of an answer, the first one included. A server that has nothing to say says so sooner. What is
   * sent has time of its own. */
  silence: number;
}

/** How often to try again what failed on its way; progress begins the count anew. */
export interface Retries {
  /** At most so often; 0: not at all. Infinity, and that of `patience`, wait for a server for ever; a turn that ends
   * its process each time is not asked for more than ten times all the same. */
  times: number;
  /** Milliseconds before the first retry, doubled for each further one. */
  first: number;
  /** At most so many milliseconds before one. */
  most: number;
  /** No retry is begun so many milliseconds after the first failure. */
  patience: number;
}

/** A message whose end is not known. */
export interface Unsent {
  readonly idempotencyKey: string;
  readonly baseUrl: string;
  /** What was to be sent, as JSON. */
  readonly body: string;
  /** Those headers that belong to it; none that lets anybody in. */
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds since 1970. */
  readonly recordedAt: number;
}

/** Keeps messages whose end is not known. What it throws while it records one is thrown instead of sending it. */
export interface Recorder {
  record(unsent: Omit<Unsent, "recordedAt">): void | Promise<void>;
  forget(idempotencyKey: string): void | Promise<void>;
}

/** What a client is made with. */
export interface ClientOptions {
  /** The text of a token; or what gives it, asked for each request, so that a page can renew it. */
  apiKey?: string | (() => string | Promise<string>) | undefined;
  /** Send the token over plain http to other machines, too: where the way to the server is private. */
  allowHttp?: boolean;
  /** Who answers where a request does not say; by default the only one that the server has. */
  model?: string | undefined;
  timeouts?: Partial<Timeouts>;
  retries?: Partial<Retries>;
  /** Where messages are written down before they are sent: see `Outbox`. */
  outbox?: Recorder;
  /** Told when a request or stream of this client finds no server, and when one answers it again; each once. Calls go
   * on trying meanwhile: this is for showing it, after a moment, since a restarted server is back soon. */
  onConnection?: (isLost: boolean) => void;
  /** Instead of the one that is there: for tests, or to add what a proxy of yours asks for. */
  fetch?: (url: string, request: RequestInit) => Promise<Response>;
  /** Call back after so many milliseconds, unless what it returns is called before. */
  timer?: (milliseconds: number, then: () => void) => () => void;
  /** A number from 0 up to 1. */
  random?: () => number;
  /** Milliseconds, since whenever. */
  now?: () => number;
}

/** What every verb takes besides its own. */
export interface CallOptions {
  /** Ends the call; a turn that runs goes on, unless its `onDisconnect` says otherwise. */
  signal?: AbortSignal | undefined;
}

/** One request, as often as it is sent. */
export interface Asked {
  /** By default POST where there is something to say, else GET. */
  readonly method?: "PATCH" | "DELETE" | undefined;
  readonly path: string;
  readonly body?: string | Blob;
  /** The body as a value, to be made JSON. */
  readonly said?: object | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** Whether it can do harm when it is sent twice. */
  readonly isOnce?: boolean;
}

/** The beginning of an answer, and its text as it comes. It is closed when that was read to its end. */
export interface Reply {
  readonly headers: Headers;
  close(): void;
  readonly pieces: AsyncGenerator<string, void, undefined>;
}

/** What a server of ours answers with. */
const OURS = /json|event-stream|markdown/;
/** Plain http to another machine: what goes there can be read on the way. */
const EXPOSED = /^http:..(?!(([^/]+\.)?localhost|127\.[\d.]+|\[::1])(:|\/|$))/;
/** What no repetition mends: it is the model's own, or the store's. */
const FOR_GOOD = /^(model_.*|malformed_answer|turn_failed|empty_turn|store_corrupt)$/;

export class Wire {
  declare readonly retries: Retries;
  declare readonly options: Required<Pick<ClientOptions, "fetch" | "timer" | "random" | "now">> & ClientOptions;
  declare readonly base: string;
  /** Ends what waits for a server: the pause before a try, or the reading of an answer, which fails then. */
  readonly waits = new Set<() => void>();
  #model: string | undefined;
  #isLost = false;

  /** Throws InvalidInput if the address is none. */
  constructor(base: string, options: ClientOptions) {
    this.base = base.replace(/\/+$/, "");
    if (!/^(https?:\/\/[^\s/?#@]+)?(\/[^\s?#]*)?$/.test(this.base)) {
      // It is not repeated: there may be a password in it.
      throw errorOf("invalid_input", "baseUrl is an address, as in http://127.0.0.1:8383.");
    }
    const { random = Math.random, timer = after, now = () => performance.now(), retries = {} } = options;
    const { times = 10, first = 100, most = 5_000, patience = 60_000 } = retries;
    this.options = { ...options, fetch: options.fetch ?? ((...given) => fetch(...given)), random, timer, now };
    this.retries = { times, first, most, patience };
  }

  /** The model that answers where a request does not say. Throws InvalidInput if there are several. */
  async model(): Promise<string> {
    return (this.#model ||= this.options.model || (await this.#onlyModel()));
  }

  async #onlyModel(): Promise<string> {
    const { data } = await this.json<{ data: { id: string }[] }>({ path: "/v1/models" });
    const [only, other] = data;
    if (only && !other) return only.id;
    const names = data.slice(0, 20).map((each) => each.id);
    throw errorOf("invalid_input", `Name a model: ${names.join(", ")}.`);
  }

  /** Send it once. Throws the error that the server answers with, ServerUnavailable if none does, and the reason of
   * the signal. */
  async open(asked: Asked, signal?: AbortSignal): Promise<Reply> {
    const controller = new AbortController();
    const unchain = chain(signal, (reason) => controller.abort(reason));
    const drop = (): void => controller.abort(unanswered("The server is silent."));
    let disarm = (): void => {};
    const arm = (extra = 0): void => {
      const { timer, timeouts: { silence = 45_000 } = {} } = this.options;
      disarm = timer(silence + extra, drop);
    };
    const close = (): void => {
      this.waits.delete(drop);
      disarm();
      unchain();
      controller.abort();
    };
    const lost = (problem: unknown): unknown => {
      const { aborted, reason } = controller.signal;
      close();
      if (aborted) problem = reason;
      else if (!(problem instanceof TurnledgerError)) problem = unanswered(`No server there: ${problem}`, problem);
      if (problem instanceof ServerUnavailable) this.#connection(true);
      return problem;
    };
    let response: Response;
    try {
      const headers = await unless(controller.signal, this.#headers(asked));
      const { method = asked.body === undefined ? "GET" : "POST", body = null, path } = asked;
      // 16 bytes are on their way after a millisecond, also where it is slow: nobody is told how far an upload is.
      arm(((body as Blob | null)?.size ?? (body as string | null)?.length ?? 0) / 16);
      // What is said is for this server, and for none that it points to.
      const sent = { method, headers, body, cache: "no-store", redirect: "manual" } as const;
      response = await this.options.fetch(this.base + path, { ...sent, signal: controller.signal });
      disarm();
      if (response.ok && !OURS.test(response.headers.get("content-type") ?? "")) throw stranger(response.headers);
    } catch (problem) {
      throw lost(problem);
    }
    const pieces = (async function* (): Reply["pieces"] {
      const decoder = new TextDecoder();
      const reader = response.body?.getReader();
      try {
        for (;;) {
          arm();
          const piece = await reader?.read();
          disarm();
          if (!piece || piece.done) return;
          yield decoder.decode(piece.value, { stream: true });
        }
      } catch (problem) {
        throw lost(problem);
      } finally {
        close();
      }
    })();
    const refused = response.ok ? undefined : refusal(response, await joined(pieces));
    this.#connection(refused instanceof ServerUnavailable);
    if (refused) throw refused;
    this.waits.add(drop);
    return { headers: response.headers, pieces, close };
  }

  #connection(isLost: boolean): void {
    if (this.#isLost !== isLost) this.options.onConnection?.((this.#isLost = isLost));
  }

  async #headers({ body, headers }: Asked): Promise<Record<string, string>> {
    const { apiKey } = this.options;
    const token = typeof apiKey === "function" ? await apiKey() : apiKey;
    // Who would refuse it later repeats it in an error.
    if (token && /[^!-~]/.test(token)) throw errorOf("invalid_input", "apiKey is no token.");
    if (token && !this.options.allowHttp && EXPOSED.test(this.base)) {
      throw errorOf("invalid_input", "Use https, or set allowHttp.");
    }
    return defined({
      "content-type": typeof body === "string" ? "application/json" : undefined,
      authorization: token ? `Bearer ${token}` : undefined,
      ...headers,
    });
  }

  /** Send it until it is answered, and return what `read` makes of the answer. */
  async ask<Told>(asked: Asked, signal: AbortSignal | undefined, read: (reply: Reply) => Promise<Told>): Promise<Told> {
    const tries = new Tries(this, signal);
    for (;;) {
      try {
        return await read(await this.open(asked, signal));
      } catch (problem) {
        if (asked.isOnce && isLost(problem)) {
          problem.message += " It may have been done.";
          throw problem;
        }
        await tries.again(problem);
      }
    }
  }

  /** Ask for a JSON object; its own fields are named as TypeScript does. */
  json<Told>({ said, ...asked }: Asked, signal?: AbortSignal): Promise<Told> {
    const whole = said ? { ...asked, body: JSON.stringify(said) } : asked;
    return this.ask(whole, signal, async (reply) => camel(parsed(await joined(reply.pieces))));
  }
}

/** The tries of one call since its last progress. */
export class Tries {
  /** How many went wrong since there was progress. */
  count = 0;
  /** Whether it goes on however often it fails. */
  isEndless = false;
  #since: number | undefined;
  readonly #wire: Wire;
  readonly #signal: AbortSignal | undefined;

  constructor(wire: Wire, signal: AbortSignal | undefined) {
    this.#wire = wire;
    this.#signal = signal;
  }

  progress(): void {
    this.count = 0;
    this.#since = undefined;
  }

  /** Wait before the next try. Throws the problem if there shall be none, and the reason of the signal. */
  async again(problem: unknown): Promise<void> {
    if (!(problem instanceof TurnledgerError) || !problem.isRetryable) throw problem;
    const { times, first, most, patience } = this.#wire.retries;
    const now = this.#wire.options.now();
    const count = this.count++;
    this.#since ??= now;
    // Clients that lost one server at once shall not come back all at once; none sooner than it was told.
    const spread = 0.5 + this.#wire.options.random() / 2;
    const pause = Math.max((problem.retryAfter ?? 0) * (0.5 + spread), Math.min(most, first * 2 ** count) * spread);
    if (!this.isEndless && (count >= times || now + pause - this.#since > patience)) throw problem;
    await this.#sleep(pause);
  }

  async #sleep(milliseconds: number): Promise<void> {
    const { waits, options } = this.#wire;
    let cancel = (): void => {};
    const isOver = new Promise<void>((resolve) => {
      const disarm = options.timer(milliseconds, resolve);
      waits.add(resolve);
      cancel = () => {
        waits.delete(resolve);
        disarm();
      };
    });
    await unless(this.#signal, isOver).finally(cancel);
  }
}

/** Nobody answered, or not to the end. */
export function unanswered(why = "The answer was not whole.", cause?: unknown): TurnledgerError {
  return errorOf("server_unavailable", why, { isRetryable: true, cause });
}

/** Something answered that knows nothing of turns: a page for logging in, for one. Or the connection broke within the
 * head of the answer: browsers take what there is of that for all of it. */
export function stranger(headers: Headers): TurnledgerError {
  const isRetryable = !headers.get("content-type")?.includes("html");
  return errorOf("request_failed", "That is no Turnledger server: check baseUrl.", { isRetryable });
}

/** Whether it may have been done, though nobody said so. There are statuses by which a server says that it was not. */
function isLost(problem: unknown): problem is TurnledgerError {
  return problem instanceof TurnledgerError && problem.isRetryable && !/408|425|429|503/.test(`${problem.status}`);
}

/** The whole of a text that comes in pieces. */
export async function joined(pieces: AsyncIterable<string>): Promise<string> {
  let whole = "";
  for await (const piece of pieces) whole += piece;
  return whole;
}

/** The value of a JSON text. Throws ServerUnavailable: it was cut off. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw unanswered();
  }
}

/** The error that an answer or an event tells. Within a stream there is no status: the type says whose fault it is. */
export function told(body: string, facts: ErrorFacts, otherwise?: ErrorName): TurnledgerError {
  let said: ErrorDetails = {};
  try {
    said = (JSON.parse(body) as ErrorDetails | null) ?? said;
    if (said.chat) said = { ...said, chat: camel(said.chat) };
  } catch {
    // Something in between answered, in words of its own.
  }
  const { code, message, type = "server_error" } = said.error ?? {};
  const { isRetryable = /^(server|rate_limit)_error$/.test(type), status = "unknown" } = facts;
  const word = String(code ?? `status_${status}`);
  return errorOf(
    word,
    message ?? `The answer has status ${status}.`,
    { ...facts, isRetryable: isRetryable && !FOR_GOOD.test(word), details: said },
    otherwise,
  );
}

function refusal({ status, headers }: Response, body: string): TurnledgerError {
  const seconds = parseFloat(headers.get("retry-after") ?? "");
  const facts = {
    status,
    requestId: headers.get("x-request-id"),
    // Nobody is sent away for longer than a day: timers of weeks would be over at once.
    retryAfter: seconds >= 0 ? Math.min(seconds * 1e3, 864e5) : null,
    isRetryable: /408|425|429|50[0234]/.test(`${status}`) && headers.get("x-should-retry") !== "false",
  };
  const isAway = /50[234]/.test(`${status}`);
  const otherwise = status === 429 ? "TooManyRequests" : isAway ? "ServerUnavailable" : undefined;
  return told(body, facts, /40[13]/.test(`${status}`) ? "NotAdmitted" : otherwise);
}

/** The same without what is undefined. */
export function defined(fields: object): Record<string, string> {
  return JSON.parse(JSON.stringify(fields)) as Record<string, string>;
}

function after(milliseconds: number, then: () => void): () => void {
  const timer = setTimeout(then, Math.min(milliseconds, 2 ** 31 - 1)); // more than that would be none at all
  return () => clearTimeout(timer);
}

/** What is promised, unless the signal ends the waiting for it: then throws its reason. */
export async function unless<Told>(signal: AbortSignal | undefined, promised: Told | Promise<Told>): Promise<Told> {
  let unchain = (): void => {};
  const ended = new Promise<never>((_, reject) => (unchain = chain(signal, reject)));
  return Promise.race([ended, promised]).finally(unchain);
}

/** Have it called when the signal ends, until what it returns is called. */
export function chain(signal: AbortSignal | undefined, end: (reason: unknown) => void): () => void {
  const abort = (): void => end(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort);
  return () => signal?.removeEventListener("abort", abort);
}
