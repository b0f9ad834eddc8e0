/** The client of a server. */

import { camel, camels, snake } from "./field-names.js";
import { Chat, linesOf, idempotencyHeader, queryOf, type ChatName, type TurnOptions } from "./chat.js";
import { idOf } from "./ids.js";
import { Pages, type Page } from "./pages.js";
import { eventsOf } from "./server-sent-events.js";
import type {
  Change,
  ChatInfo,
  Hit,
  ImportReport,
  Job,
  Model,
  ModelUsage,
  ResetPolicy,
  StopOutcome,
} from "./shapes.js";
import { Shares } from "./shares.js";
import { Stream } from "./stream.js";
import { stopAt, TurnStream, type StopOptions } from "./turn-stream.js";
import { Tokens } from "./tokens.js";
import {
  joinPieces,
  parseJson,
  errorIn,
  RetryCount,
  noAnswerError,
  Wire,
  type CallOptions,
  type ClientOptions,
  type Reply,
  type UnsentMessage,
} from "./wire.js";

/** The client of one server. It holds no connection; share one per program. */
export class Client {
  /** The chats of the token's owner. */
  declare readonly chats: Chats;
  declare readonly tokens: Tokens;
  declare readonly shares: Shares;
  readonly #wire: Wire;

  /** `baseUrl`: the server's address; empty: the origin of the page. */
  constructor(baseUrl = "http://127.0.0.1:8383", options: ClientOptions = {}) {
    const wire = (this.#wire = new Wire(baseUrl, options));
    this.tokens = new Tokens(wire);
    this.shares = new Shares(wire);
    this.chats = new Chats(wire);
  }

  get baseUrl(): string {
    return this.#wire.base;
  }

  /** Send a recorded turn again, under its idempotencyKey. */
  resend(unsent: UnsentMessage, options: CallOptions & Pick<TurnOptions, "beforeRetry"> = {}): TurnStream {
    const { signal, beforeRetry } = options;
    const request = Promise.resolve({ path: "/api/turns", ...unsent });
    return new TurnStream(this.#wire, unsent.idempotencyKey, request, signal, undefined, false, beforeRetry);
  }

  /** Follow changes to the chats, from now on or after a position. Reconnects by itself, without end; close it, or
   * leave the loop. Throws if the server refuses the token, or was never reached. */
  events(options: CallOptions & { after?: string } = {}): Stream<Change> {
    return new Stream((ending) => changes(this.#wire, options.after, ending), options.signal);
  }

  /** Drop all connections and reconnect, and retry at once instead of waiting: for a device that is online again, whose
   * connections may be dead without notice. */
  reconnect(): void {
    for (const end of [...this.#wire.waits]) end();
  }

  /** List the background turns that wait or run, of one chat or of all, the oldest first; see `chat.enqueue`. */
  jobs({ chat, limit: total, signal }: CallOptions & { chat?: string; limit?: number } = {}): Pages<Job> {
    return new Pages(async (after, limit) => {
      const path = "/api/jobs" + queryOf({ chat, after, limit });
      const page = await this.#wire.json<Page<object>>({ path }, signal);
      return { ...page, data: camels(page.data) };
    }, total);
  }

  /** Count turns, tokens and bytes by owner and model; needs a token with `admin`. Each page counts up to 1,000 turns:
   * add up the entries of an owner and model. */
  usage({ signal }: CallOptions = {}): Pages<ModelUsage> {
    return new Pages(async (cursor) => {
      const page = await this.#wire.json<Page<object>>({ path: "/api/usage" + queryOf({ cursor }) }, signal);
      return { ...page, data: camels(page.data) };
    });
  }

  /** List the models that the caller may use. */
  async models({ signal }: CallOptions = {}): Promise<Model[]> {
    return (await this.#wire.json<{ data: Model[] }>({ path: "/v1/models" }, signal)).data;
  }

  /** Export all chats, or those of a scope, as lines of a file. */
  export({ scope, signal }: CallOptions & { scope?: string } = {}): AsyncGenerator<string, void, undefined> {
    return linesOf(this.#wire, "/api/export" + queryOf({ scope }), signal);
  }

  /** Import the chats of a file, whole or by its lines. Existing chats are never changed, so it may be repeated. */
  importChats(
    lines: string | Blob | readonly string[],
    { scope, signal }: CallOptions & { scope?: string } = {},
  ): Promise<ImportReport[]> {
    const body = Array.isArray(lines) ? lines.join("\n") : (lines as string | Blob);
    const headers = { "content-type": "application/x-ndjson" };
    const request = { path: "/api/import" + queryOf({ scope }), headers, body };
    return this.#wire.ask(request, signal, reportsOf);
  }
}

export interface ListOptions extends CallOptions {
  /** Search in titles and messages, see `search`. Each chat has its snippet. */
  q?: string;
  scope?: string;
  tag?: string;
  /** `null`: archived or not. */
  archived?: boolean | null;
  pinned?: boolean | null;
  /** Those that can be restored, instead of the others. */
  deleted?: boolean;
  limit?: number;
}

/** Details of a new chat. */
export interface NewChat {
  /** A name of your own, unique in its scope: if a chat has it, that one is found. */
  conversationKey?: string;
  scope?: string;
  title?: string;
  metadata?: Readonly<Record<string, string>>;
  tags?: readonly string[];
  /** For programs: no list, search or change shows it. */
  internal?: boolean;
  /** Seconds without use after which it expires. Default: that of the server, or never. */
  expiresAfter?: number;
  /** When its conversationKey moves to a fresh chat. Default: that of the server, or `never`. */
  reset?: ResetPolicy;
}

export class Chats {
  readonly #wire: Wire;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** Create a chat, once; or find the one with the conversationKey. */
  async create(options: NewChat & CallOptions & { idempotencyKey?: string } = {}): Promise<Chat> {
    const { signal, idempotencyKey, ...fields } = options;
    const request = { path: "/api/chats", headers: idempotencyHeader(idempotencyKey), fields: snake(fields) };
    return this.#chat(await this.#wire.json(request, signal));
  }

  /** Name a chat by its id or conversationKey, without a request. Throws InvalidId. */
  open(name: string | ChatName): Chat {
    return new Chat(this.#wire, typeof name === "string" ? { id: name } : name);
  }

  /** List the chats, the last used first; with `q`, those that a search finds. */
  list(options: ListOptions = {}): Pages<ChatInfo> {
    const { q, scope, tag, archived = false, pinned = null, deleted, limit: total, signal } = options;
    return new Pages(async (cursor, limit) => {
      if (q === undefined) {
        const flags = { archived: archived ?? "any", pinned: pinned ?? "any", deleted: deleted || undefined };
        return this.#page("/api/chats" + queryOf({ scope, tag, ...flags, cursor, limit }), signal);
      }
      const page = await this.#hits({ q, scope, cursor, limit }, signal);
      const data = page.data.map(({ chat, snippet, marks }) => ({ ...chat, snippet, marks }));
      const matches = data.filter(
        (chat) =>
          (!tag || chat.tags.includes(tag)) &&
          (archived ?? chat.archived) === chat.archived &&
          (pinned ?? chat.pinned) === chat.pinned,
      );
      return { ...page, data: matches };
    }, total);
  }

  /** Find chats by words: titles first, then the newest message, one hit per chat. */
  search(q: string, options: CallOptions & { scope?: string; limit?: number } = {}): Pages<Hit> {
    const { scope, limit: total, signal } = options;
    return new Pages((cursor, limit) => this.#hits({ q, scope, cursor, limit }, signal), total);
  }

  /** Give a conversationKey to a fresh chat, if it still names the replaced one. */
  async reset(
    conversationKey: string,
    { replaces, scope, signal }: CallOptions & { replaces: string; scope?: string },
  ): Promise<Chat> {
    const fields = snake({ conversationKey, replaces: idOf("conv", replaces), scope });
    return this.#chat(await this.#wire.json({ path: "/api/chats/reset", fields }, signal));
  }

  /** Stop the turn that was requested under an idempotencyKey, before its id is known. Resolves when it is final; null
   * if no request with this key has arrived. */
  stop(idempotencyKey: string, options: StopOptions = {}): Promise<StopOutcome | null> {
    return stopAt(this.#wire, "turns", options, { idempotency_key: idempotencyKey });
  }

  async #hits(fields: object, signal: AbortSignal | undefined): Promise<Page<Hit>> {
    const page = await this.#page<Hit>("/api/search" + queryOf(fields), signal);
    return { ...page, data: page.data.map((hit) => ({ ...hit, chat: camel(hit.chat) })) };
  }

  async #page<Entry>(path: string, signal: AbortSignal | undefined): Promise<Page<Entry>> {
    const page = await this.#wire.json<Page<object>>({ path }, signal);
    return { ...page, data: camels(page.data) };
  }

  #chat(info: ChatInfo): Chat {
    return new Chat(this.#wire, info);
  }
}

async function* changes(
  wire: Wire,
  after: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<Change, void, undefined> {
  const retryCount = new RetryCount(wire, signal);
  let position = after;
  for (;;) {
    let reply: Reply | undefined;
    try {
      reply = await wire.open({ path: "/api/events", headers: { "last-event-id": position } }, signal);
      for await (const { id, type, data } of eventsOf(reply.pieces)) {
        if (type === "error") throw errorIn(data, { requestId: reply.headers.get("x-request-id") });
        retryCount.progress();
        retryCount.isEndless = true; // a server that answered once will come back
        position = id || position;
        if (data) yield { ...camel<Change>(parseJson(data)), position: position as string };
      }
      throw noAnswerError();
    } catch (problem) {
      await retryCount.again(problem);
    } finally {
      reply?.close();
    }
  }
}

async function reportsOf(reply: Reply): Promise<ImportReport[]> {
  const lines = (await joinPieces(reply.pieces)).trim().split("\n");
  const last = lines.pop() as string;
  if (!("done" in (parseJson(last) as object))) throw errorIn(last, {});
  return lines.map((line) => camel<ImportReport>(parseJson(line)));
}
