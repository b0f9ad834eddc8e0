/** Requests and their responses: a single try, and with retries. */

import { camel } from "./field-names.js";
import { errorOf, type ErrorName } from "./error-of.js";
import { ServerUnavailable, TurnledgerError, type ErrorDetails, type ErrorFacts } from "./errors.js";

/** In milliseconds. */
export interface Timeouts {
  /** For the next byte of a response, including the first. Servers send heartbeats more often. Uploads have extra
   * time. */
  silence: number;
}

/** How often to retry after lost connections; progress resets the count. */
export interface Retries {
  /** Maximum number; 0: never. With Infinity, here and in `patience`, retries never end; but a turn that kills its
   * process each time is requested at most ten times. */
  times: number;
  /** Milliseconds before the first retry, doubled for each further one. */
  firstPause: number;
  /** Maximum milliseconds before a retry. */
  maxPause: number;
  /** Milliseconds from the first failure after which no retry begins. */
  patience: number;
}

/** A message of unknown outcome. */
export interface UnsentMessage {
  readonly idempotencyKey: string;
  readonly baseUrl: string;
  /** The request's body, as JSON. */
  readonly body: string;
  /** Its headers, without authorization. */
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds since 1970. */
  readonly recordedAt: number;
}

/** Keeps messages of unknown outcome. If `record` throws, the message is not sent, and the error is thrown instead. */
export interface Recorder {
  record(unsent: Omit<UnsentMessage, "recordedAt">): void | Promise<void>;
  forget(idempotencyKey: string): void | Promise<void>;
}

export interface ClientOptions {
  /** The text of a token; or a function that returns it for each request, so that a page can renew it. */
  apiKey?: string | (() => string | Promise<string>) | undefined;
  /** Send the token over plain http to other machines, too: for a private network. */
  allowHttp?: boolean;
  /** The default model; otherwise the only one of the server. */
  model?: string | undefined;
  timeouts?: Partial<Timeouts>;
  retries?: Partial<Retries>;
  /** Records messages before they are sent: see `Outbox`. */
  outbox?: Recorder;
  /** Called when a request or stream finds no server, and when the server answers again; each once. Retries continue
   * meanwhile. Show it with a delay: a restarted server is back soon. */
  onConnection?: (isLost: boolean) => void;
  /** Replaces the global one: for tests, or to add a proxy's headers. */
  fetch?: (url: string, request: RequestInit) => Promise<Response>;
  /** Calls back after this many milliseconds, unless the returned function is called before. */
  timer?: (milliseconds: number, then: () => void) => () => void;
  /** Returns a number from 0 up to 1. */
  random?: () => number;
  /** Returns milliseconds since any moment. */
  now?: () => number;
}

/** Options of every method. */
export interface CallOptions {
  /** Ends the call; a running turn continues, unless its `onDisconnect` says otherwise. */
  signal?: AbortSignal | undefined;
}

/** One request, however often it is sent. */
export interface ApiRequest {
  /** By default POST with a body, else GET. */
  readonly method?: "PATCH" | "DELETE" | undefined;
  readonly path: string;
  readonly body?: string | Blob;
  /** The body as a value, to be encoded as JSON. */
  readonly fields?: object | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** Whether sending it twice may do harm. */
  readonly isOnce?: boolean;
}

/** The headers of a response, and its text as it arrives. Closed when read to its end. */
export interface Reply {
  readonly headers: Headers;
  close(): void;
  readonly pieces: AsyncGenerator<string, void, undefined>;
}

/** Content types of our server. */
const OWN_TYPES = /json|event-stream|markdown/;
/** Plain http to another machine, which others can read. */
const EXPOSED = /^http:..(?!(([^/]+\.)?localhost|127\.[\d.]+|\[::1])(:|\/|$))/;
/** Failures of the model or the store, which a retry does not solve. */
const PERMANENT = /^(model_.*|malformed_answer|turn_failed|empty_turn|store_corrupt)$/;

export class Wire {
  declare readonly retries: Retries;
  declare readonly options: Required<Pick<ClientOptions, "fetch" | "timer" | "random" | "now">> & ClientOptions;
  declare readonly base: string;
  /** Functions that end a pause before a retry, or the reading of a response, which then fails. */
  readonly waits = new Set<() => void>();
  #model: string | undefined;
  #isLost = false;

  /** Throws InvalidInput for an invalid address. */
  constructor(base: string, options: ClientOptions) {
    this.base = base.replace(/\/+$/, "");
    if (!/^(https?:\/\/[^\s/?#@]+)?(\/[^\s?#]*)?$/.test(this.base)) {
      // Do not repeat it: it may contain a password.
      throw errorOf("invalid_input", "baseUrl must be an address, as in http://127.0.0.1:8383.");
    }
    const { random = Math.random, timer = after, now = () => performance.now(), retries = {} } = options;
    const { times = 10, firstPause = 100, maxPause = 5_000, patience = 60_000 } = retries;
    this.options = { ...options, fetch: options.fetch ?? ((...given) => fetch(...given)), random, timer, now };
    this.retries = { times, firstPause, maxPause, patience };
  }

  /** Return the default model. Throws InvalidInput if there are several. */
  async model(): Promise<string> {
    return (this.#model ||= this.options.model || (await this.#onlyModel()));
  }

  async #onlyModel(): Promise<string> {
    const { data } = await this.json<{ data: { id: string }[] }>({ path: "/v1/models" });
    const [only, other] = data;
    if (only && !other) return only.id;
    const names = data.slice(0, 20).map((each) => each.id);
    throw errorOf("invalid_input", `Choose a model: ${names.join(", ")}.`);
  }

  /** Send it once. Throws the server's error, ServerUnavailable without a response, and the reason of the signal. */
  async open(request: ApiRequest, signal?: AbortSignal): Promise<Reply> {
    const controller = new AbortController();
    const unchain = chain(signal, (reason) => controller.abort(reason));
    const drop = (): void => controller.abort(noAnswerError("The server does not respond. Check it."));
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
    const asProblem = (problem: unknown): unknown => {
      const { aborted, reason } = controller.signal;
      close();
      if (aborted) problem = reason;
      else if (!(problem instanceof TurnledgerError)) {
        problem = noAnswerError(`No connection: ${problem}. Try again.`, problem);
      }
      if (problem instanceof ServerUnavailable) this.#connection(true);
      return problem;
    };
    let response: Response;
    try {
      const headers = await unlessAborted(controller.signal, this.#headers(request));
      const { method = request.body === undefined ? "GET" : "POST", body = null, path } = request;
      // Even a slow line sends 16 bytes per millisecond; there is no event for upload progress.
      arm(((body as Blob | null)?.size ?? (body as string | null)?.length ?? 0) / 16);
      // A redirect leads to another server, which must not receive the request.
      const sent = { method, headers, body, cache: "no-store", redirect: "manual" } as const;
      response = await this.options.fetch(this.base + path, { ...sent, signal: controller.signal });
      disarm();
      const isOwn = OWN_TYPES.test(response.headers.get("content-type") ?? "");
      if (response.ok && !isOwn) throw foreignServerError(response.headers);
    } catch (problem) {
      throw asProblem(problem);
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
        throw asProblem(problem);
      } finally {
        close();
      }
    })();
    const refused = response.ok ? undefined : errorOfResponse(response, await joinPieces(pieces));
    this.#connection(refused instanceof ServerUnavailable);
    if (refused) throw refused;
    this.waits.add(drop);
    return { headers: response.headers, pieces, close };
  }

  #connection(isLost: boolean): void {
    if (this.#isLost !== isLost) this.options.onConnection?.((this.#isLost = isLost));
  }

  async #headers({ body, headers }: ApiRequest): Promise<Record<string, string>> {
    const { apiKey } = this.options;
    const token = typeof apiKey === "function" ? await apiKey() : apiKey;
    // `fetch` would repeat it in its error.
    if (token && /[^!-~]/.test(token)) throw errorOf("invalid_input", "apiKey is not a token: copy it completely.");
    if (token && !this.options.allowHttp && EXPOSED.test(this.base)) {
      throw errorOf("invalid_input", "The token would go unencrypted. Use https, or set allowHttp.");
    }
    return withoutUndefined({
      "content-type": typeof body === "string" ? "application/json" : undefined,
      authorization: token ? `Bearer ${token}` : undefined,
      ...headers,
    });
  }

  /** Send it until it is answered, and return what `read` returns for the response. */
  async ask<Result>(
    request: ApiRequest,
    signal: AbortSignal | undefined,
    read: (reply: Reply) => Promise<Result>,
  ): Promise<Result> {
    const retryCount = new RetryCount(this, signal);
    for (;;) {
      try {
        return await read(await this.open(request, signal));
      } catch (problem) {
        if (request.isOnce && isLost(problem)) {
          problem.message += " It may have been carried out.";
          throw problem;
        }
        await retryCount.again(problem);
      }
    }
  }

  /** Request a JSON object, with its field names in camel case. */
  json<Result>({ fields, ...request }: ApiRequest, signal?: AbortSignal): Promise<Result> {
    const sent = fields ? { ...request, body: JSON.stringify(fields) } : request;
    return this.ask(sent, signal, async (reply) => camel(parseJson(await joinPieces(reply.pieces))));
  }
}

/** Counts the tries of one call. */
export class RetryCount {
  /** Failed tries since the last progress. */
  count = 0;
  /** Whether to retry without end. */
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

  /** Wait before the next try. Throws the problem if there is none, and the reason of the signal. */
  async again(problem: unknown): Promise<void> {
    if (!(problem instanceof TurnledgerError) || !problem.isRetryable) throw problem;
    const { times, firstPause, maxPause, patience } = this.#wire.retries;
    const now = this.#wire.options.now();
    const count = this.count++;
    this.#since ??= now;
    // Clients that lost one server together must not reconnect together, nor sooner than the server asks.
    const spread = 0.5 + this.#wire.options.random() / 2;
    const ownPause = Math.min(maxPause, firstPause * 2 ** count) * spread;
    const pause = Math.max((problem.retryAfter ?? 0) * (0.5 + spread), ownPause);
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
    await unlessAborted(this.#signal, isOver).finally(cancel);
  }
}

/** The error for a missing or incomplete response. */
export function noAnswerError(message = "The response was incomplete. Try again.", cause?: unknown): TurnledgerError {
  return errorOf("server_unavailable", message, { isRetryable: true, cause });
}

/** The error for another server's response, such as a login page. Or the connection broke within the head: browsers
 * take that for a complete one. */
export function foreignServerError(headers: Headers): TurnledgerError {
  const isRetryable = !headers.get("content-type")?.includes("html");
  return errorOf("request_failed", "Not a Turnledger server: check baseUrl.", { isRetryable });
}

/** Whether it may have been carried out, its response lost. Some statuses exclude that. */
function isLost(problem: unknown): problem is TurnledgerError {
  return problem instanceof TurnledgerError && problem.isRetryable && !/408|425|429|503/.test(`${problem.status}`);
}

/** Join the pieces of a text. */
export async function joinPieces(pieces: AsyncIterable<string>): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += piece;
  return text;
}

/** Parse JSON. Throws ServerUnavailable: it was truncated. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw noAnswerError();
  }
}

/** Return the error in a response or event. A stream has no status: there the type shows whether to retry. */
export function errorIn(body: string, facts: ErrorFacts, fallback?: ErrorName): TurnledgerError {
  let details: ErrorDetails = {};
  try {
    details = (JSON.parse(body) as ErrorDetails | null) ?? details;
    if (details.chat) details = { ...details, chat: camel(details.chat) };
  } catch {
    // A proxy answered.
  }
  const { code, message, type = "server_error" } = details.error ?? {};
  const { isRetryable = /^(server|rate_limit)_error$/.test(type), status = "unknown" } = facts;
  const errorCode = String(code ?? `status_${status}`);
  return errorOf(
    errorCode,
    message ?? `The response has status ${status}.`,
    { ...facts, isRetryable: isRetryable && !PERMANENT.test(errorCode), details },
    fallback,
  );
}

function errorOfResponse({ status, headers }: Response, body: string): TurnledgerError {
  const seconds = parseFloat(headers.get("retry-after") ?? "");
  const facts = {
    status,
    requestId: headers.get("x-request-id"),
    // At most a day: timers of weeks would fire at once.
    retryAfter: seconds >= 0 ? Math.min(seconds * 1e3, 864e5) : null,
    isRetryable: /408|425|429|50[0234]/.test(`${status}`) && headers.get("x-should-retry") !== "false",
  };
  const isAway = /50[234]/.test(`${status}`);
  const fallback = status === 429 ? "TooManyRequests" : isAway ? "ServerUnavailable" : undefined;
  return errorIn(body, facts, /40[13]/.test(`${status}`) ? "NotAdmitted" : fallback);
}

/** Copy without undefined fields. */
export function withoutUndefined(fields: object): Record<string, string> {
  return JSON.parse(JSON.stringify(fields)) as Record<string, string>;
}

function after(milliseconds: number, then: () => void): () => void {
  const timer = setTimeout(then, Math.min(milliseconds, 2 ** 31 - 1)); // a longer one would fire at once
  return () => clearTimeout(timer);
}

/** Await the promise, unless the signal aborts: then throws its reason. */
export async function unlessAborted<Result>(
  signal: AbortSignal | undefined,
  promised: Result | Promise<Result>,
): Promise<Result> {
  let unchain = (): void => {};
  const ended = new Promise<never>((_, reject) => (unchain = chain(signal, reject)));
  return Promise.race([ended, promised]).finally(unchain);
}

/** Call `end` when the signal aborts, until the returned function is called. */
export function chain(signal: AbortSignal | undefined, end: (reason: unknown) => void): () => void {
  const abort = (): void => end(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort);
  return () => signal?.removeEventListener("abort", abort);
}
