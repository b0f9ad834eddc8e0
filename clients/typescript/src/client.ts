/** The client: a server, and how to reach it. */

import { camel, camels, snake } from "./field-names.js";
import { Chat, linesOf, onceUnder, queryOf, type ChatName, type TurnOptions } from "./chat.js";
import { idOf } from "./ids.js";
import { Pages, type Page } from "./pages.js";
import { eventsOf } from "./server-sent-events.js";
import type { Change, ChatInfo, Hit, ImportReport, Model } from "./shapes.js";
import { Shares } from "./shares.js";
import { Stream } from "./stream.js";
import { TurnStream } from "./turn-stream.js";
import { Tokens } from "./tokens.js";
import {
  joined,
  parsed,
  told,
  Tries,
  unanswered,
  Wire,
  type CallOptions,
  type ClientOptions,
  type Reply,
  type Unsent,
} from "./wire.js";

/** One may be shared by a whole program. It holds no connection of its own. */
export class Client {
  /** The chats of whoever the token belongs to. */
  declare readonly chats: Chats;
  declare readonly tokens: Tokens;
  declare readonly shares: Shares;
  readonly #wire: Wire;

  /** `baseUrl`: where the server is; an empty text: where the page came from. */
  constructor(baseUrl = "http://127.0.0.1:8383", options: ClientOptions = {}) {
    const wire = (this.#wire = new Wire(baseUrl, options));
    this.tokens = new Tokens(wire);
    this.shares = new Shares(wire);
    this.chats = new Chats(wire);
  }

  /** Where the server is. */
  get baseUrl(): string {
    return this.#wire.base;
  }

  /** Ask again for a turn that was written down before, under its idempotencyKey. */
  resend(unsent: Unsent, options: CallOptions & Pick<TurnOptions, "beforeRetry"> = {}): TurnStream {
    const { signal, beforeRetry } = options;
    const asked = Promise.resolve({ path: "/api/turns", ...unsent });
    return new TurnStream(this.#wire, unsent.idempotencyKey, asked, signal, undefined, false, beforeRetry);
  }

  /** What happens to the chats, as it happens, from now on or behind a position. It reconnects by itself, for ever;
   * close it, or leave the loop. Throws if the server lets one in no more, or was never heard. */
  events(options: CallOptions & { after?: string } = {}): Stream<Change> {
    return new Stream((ending) => changes(this.#wire, options.after, ending), options.signal);
  }

  /** Drop what is read and take it up on connections anew, and try at once what waits for its next try: for a device
   * that is online again, whose connections may be dead without anybody knowing. */
  reconnect(): void {
    for (const end of [...this.#wire.waits]) end();
  }

  /** The models that may be asked. */
  async models({ signal }: CallOptions = {}): Promise<Model[]> {
    return (await this.#wire.json<{ data: Model[] }>({ path: "/v1/models" }, signal)).data;
  }

  /** All chats, or those of a scope, as the lines of a file. */
  export({ scope, signal }: CallOptions & { scope?: string } = {}): AsyncGenerator<string, void, undefined> {
    return linesOf(this.#wire, "/api/export" + queryOf({ scope }), signal);
  }

  /** Take in the chats of a file, whole or by its lines. What is there is never changed, so it may be repeated. */
  importChats(
    lines: string | Blob | readonly string[],
    { scope, signal }: CallOptions & { scope?: string } = {},
  ): Promise<ImportReport[]> {
    const body = Array.isArray(lines) ? lines.join("\n") : (lines as string | Blob);
    const headers = { "content-type": "application/x-ndjson" };
    const asked = { path: "/api/import" + queryOf({ scope }), headers, body };
    return this.#wire.ask(asked, signal, reportsOf);
  }
}

/** Which chats to list. */
export interface ListOptions extends CallOptions {
  /** Those where this was said, or that are called so: see `search`. Each comes with its snippet. */
  q?: string;
  scope?: string;
  tag?: string;
  /** `null`: archived or not. */
  archived?: boolean | null;
  pinned?: boolean | null;
  /** Those that can be restored, in place of the others. */
  deleted?: boolean;
  /** So many at most. */
  limit?: number;
}

/** What a chat is to be. */
export interface NewChat {
  /** A name of your own: one chat of a scope has it, which is found rather than made again. */
  conversationKey?: string;
  scope?: string;
  title?: string;
  metadata?: Readonly<Record<string, string>>;
  tags?: readonly string[];
}

export class Chats {
  readonly #wire: Wire;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** Make a chat, once; or find the one that has the conversationKey. */
  async create(options: NewChat & CallOptions & { idempotencyKey?: string } = {}): Promise<Chat> {
    const { signal, idempotencyKey, ...said } = options;
    const asked = { path: "/api/chats", headers: onceUnder(idempotencyKey), said: snake(said) };
    return this.#chat(await this.#wire.json(asked, signal));
  }

  /** A chat that is there, by its id or by its conversationKey. Asks nobody. Throws InvalidId. */
  open(name: string | ChatName): Chat {
    return new Chat(this.#wire, typeof name === "string" ? { id: name } : name);
  }

  /** The chats, the last used first; with `q`, those that were found. */
  list(options: ListOptions = {}): Pages<ChatInfo> {
    const { q, scope, tag, archived = false, pinned = null, deleted, limit: most, signal } = options;
    return new Pages(async (cursor, limit) => {
      if (q === undefined) {
        const flags = { archived: archived ?? "any", pinned: pinned ?? "any", deleted: deleted || undefined };
        return this.#page("/api/chats" + queryOf({ scope, tag, ...flags, cursor, limit }), signal);
      }
      const page = await this.#hits({ q, scope, cursor, limit }, signal);
      const data = page.data.map(({ chat, snippet, marks }) => ({ ...chat, snippet, marks }));
      const wanted = data.filter(
        (chat) =>
          (!tag || chat.tags.includes(tag)) &&
          (archived ?? chat.archived) === chat.archived &&
          (pinned ?? chat.pinned) === chat.pinned,
      );
      return { ...page, data: wanted };
    }, most);
  }

  /** Where words stand: titles first, then the newest message, one hit for each chat. */
  search(q: string, options: CallOptions & { scope?: string; limit?: number } = {}): Pages<Hit> {
    const { scope, limit: most, signal } = options;
    return new Pages((cursor, limit) => this.#hits({ q, scope, cursor, limit }, signal), most);
  }

  /** Give a conversationKey to a fresh chat, if it still names the one that is replaced. */
  async reset(
    conversationKey: string,
    { replaces, scope, signal }: CallOptions & { replaces: string; scope?: string },
  ): Promise<Chat> {
    const said = snake({ conversationKey, replaces: idOf("conv", replaces), scope });
    return this.#chat(await this.#wire.json({ path: "/api/chats/reset", said }, signal));
  }

  async #hits(said: object, signal: AbortSignal | undefined): Promise<Page<Hit>> {
    const page = await this.#page<Hit>("/api/search" + queryOf(said), signal);
    return { ...page, data: page.data.map((hit) => ({ ...hit, chat: camel(hit.chat) })) };
  }

  async #page<Entry>(path: string, signal: AbortSignal | undefined): Promise<Page<Entry>> {
    const page = await this.#wire.json<Page<object>>({ path }, signal);
    return { ...page, data: camels(page.data) };
  }

  #chat(told: ChatInfo): Chat {
    return new Chat(this.#wire, told);
  }
}

async function* changes(
  wire: Wire,
  after: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<Change, void, undefined> {
  const tries = new Tries(wire, signal);
  let position = after;
  for (;;) {
    let reply: Reply | undefined;
    try {
      reply = await wire.open({ path: "/api/events", headers: { "last-event-id": position } }, signal);
      for await (const { id, type, data } of eventsOf(reply.pieces)) {
        if (type === "error") throw told(data, { requestId: reply.headers.get("x-request-id") });
        tries.progress();
        tries.isEndless = true; // who has heard a server waits for it to come back
        position = id || position;
        if (data) yield { ...camel<Change>(parsed(data)), position: position as string };
      }
      throw unanswered();
    } catch (problem) {
      await tries.again(problem);
    } finally {
      reply?.close();
    }
  }
}

async function reportsOf(reply: Reply): Promise<ImportReport[]> {
  const lines = (await joined(reply.pieces)).trim().split("\n");
  const last = lines.pop() as string;
  if (!("done" in (parsed(last) as object))) throw told(last, {});
  return lines.map((line) => camel<ImportReport>(parsed(line)));
}
