/** One chat: its turns, branches and details. */

import { camel, camels } from "./field-names.js";
import { errorOf } from "./error-of.js";
import { BranchNotFound, ConversationNotFound } from "./errors.js";
import { freshKey, idOf, type Identified } from "./ids.js";
import { Pages } from "./pages.js";
import type {
  Answer,
  Branch,
  ChatInfo,
  ChatPage,
  StopOutcome,
  Input,
  OnBusy,
  OnDisconnect,
  OnFailure,
  OnStop,
  ChatContext,
  ResetPolicy,
  Sibling,
  Turn,
  TurnFlags,
} from "./shapes.js";
import { lineCutter } from "./server-sent-events.js";
import { newFollowedTurn, stopAt, TurnEvents, TurnStream, type StopOptions } from "./turn-stream.js";
import { withoutUndefined, type ApiRequest, type CallOptions, type Reply, type Wire } from "./wire.js";

/** Options of a turn. */
export interface TurnOptions extends CallOptions {
  model?: string;
  /** Apply from this turn on; an empty text ends the current ones. */
  instructions?: Input;
  /** History shown to the model before the stored one, in this turn only. It is never stored. */
  primer?: Input;
  /** How much of the history the model is shown: the last turns, those that fit into a budget of tokens, or with `{}`
   * all of it. By default as the server is set. */
  context?: { last: number } | { budget: number } | Record<string, never>;
  /** Further fields for the model: `temperature`, `tools`, … */
  settings?: Readonly<Record<string, unknown>>;
  /** While another turn runs. */
  onBusy?: OnBusy;
  /** When the turn is stopped. */
  onStop?: OnStop;
  /** When it fails. */
  onFailure?: OnFailure;
  /** When no client reads it. */
  onDisconnect?: OnDisconnect;
  /** Throw an error instead of creating a chat for an unknown conversationKey. */
  mustExist?: boolean;
  /** The policy of the conversationKey from this turn on. */
  reset?: ResetPolicy;
  /** For `send`: the turn to follow, on any branch. It never waits, and runs on a side branch if need be. */
  after?: Identified;
  /** False for turns that a program runs by itself: they postpone neither expiry nor a reset. */
  interaction?: boolean;
  /** Names the request, so that it is carried out once however often it is sent; by default a fresh one. */
  idempotencyKey?: string;
  /** Awaited before a retry if no server has begun the turn: keeps several messages in order. */
  beforeRetry?: () => Promise<void>;
}

/** For events as they arrive. */
export type StreamOptions = TurnOptions & { stream: true };
/** For a complete answer. */
export type AnswerOptions = TurnOptions & { stream?: false };

/** Changes to a chat; fields that are left out stay. */
export interface ChatChanges {
  /** Null or empty: its first words again. */
  title?: string | null;
  metadata?: Readonly<Record<string, string>> | null;
  tags?: readonly string[] | null;
  pinned?: boolean;
  archived?: boolean;
}

/** A chat by its id, or the one with a conversationKey in a scope. */
export type ChatName = { id: string } | { conversationKey: string; scope?: string };

/** Returned by `client.chats`. It holds only the name of a chat, so there may be any number of one chat. */
export class Chat {
  declare readonly conversationKey: string | null;
  declare readonly scope: string | null;
  readonly #wire: Wire;
  readonly #usesKey: boolean;
  /** Turns requested here that have not ended, as far as known. */
  readonly #running = new Set<TurnStream>();
  #id: string | null;

  /** Throws InvalidId, or InvalidInput if it names nothing. */
  constructor(wire: Wire, name: Partial<Pick<ChatInfo, "id" | "conversationKey" | "scope">>) {
    const { id, conversationKey = null, scope = null } = name;
    this.#usesKey = id === undefined;
    if (this.#usesKey && !conversationKey) {
      throw errorOf("invalid_input", "Name the chat by id or conversationKey.");
    }
    this.#wire = wire;
    this.#id = id === undefined ? null : idOf("conv", id);
    this.conversationKey = conversationKey;
    this.scope = scope;
  }

  /** Null until known, if opened by a conversationKey; then the id of the last turn's chat. */
  get id(): string | null {
    return this.#id;
  }

  /** Request a turn after the last one. It happens once, whatever happens to connections. */
  send(input: Input, options: StreamOptions): TurnStream;
  send(input: Input, options?: AnswerOptions): Promise<Answer>;
  send(input: Input, options?: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer>;
  send(input: Input, options: TurnOptions & { stream?: boolean } = {}): TurnStream | Promise<Answer> {
    return this.#request({ ...(this.#usesKey ? this.#keyTarget() : this.#target()), input }, options);
  }

  /** Request a turn in place of another, on a new branch. */
  edit(turn: Identified, input: Input, options: StreamOptions): TurnStream;
  edit(turn: Identified, input: Input, options?: AnswerOptions): Promise<Answer>;
  edit(turn: Identified, input: Input, options?: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer>;
  edit(turn: Identified, input: Input, options: TurnOptions & { stream?: boolean } = {}): TurnStream | Promise<Answer> {
    return this.#request({ ...this.#target(), input, replaces: idOf("turn", turn) }, options);
  }

  /** Request another answer to the input of a turn, or of the last one. */
  regenerate(turn: Identified | null | undefined, options: StreamOptions): TurnStream;
  regenerate(turn?: Identified | null, options?: AnswerOptions): Promise<Answer>;
  regenerate(turn?: Identified | null, options?: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer>;
  regenerate(turn?: Identified | null, options: TurnOptions & { stream?: boolean } = {}): TurnStream | Promise<Answer> {
    return this.#request({ ...this.#target(), regenerates: turn ? idOf("turn", turn) : true }, options);
  }

  /** Store a turn that a server runs in the background, and return its id, without waiting for it. It outlives this
   * program and the server: another server resumes it after a crash. `events` and `stop` take its id; `send` with the
   * same idempotencyKey waits for its answer. `onBusy` and `onDisconnect` do not apply. */
  async enqueue(input: Input, options: TurnOptions = {}): Promise<string> {
    const target = this.#usesKey ? this.#keyTarget() : this.#target();
    const after = options.after ? idOf("turn", options.after) : undefined;
    const headers = this.#turnHeaders(options, options.idempotencyKey);
    const request = await this.#turnRequest({ ...target, input, after, background: true }, options, headers);
    const { id, chat } = await this.#wire.json<{ id: string; chat: { id: string } }>(request, options.signal);
    this.#id = chat.id;
    return id;
  }

  /** Add a turn that no model answers, such as items from elsewhere, and return it as committed. The items are the
   * whole turn: a text is a user message, and an answer may follow. */
  async append(items: Input, options: AppendOptions = {}): Promise<Turn> {
    const { details, interaction } = options;
    const reply = await this.#move<{ turn: object }>("/items", { items, details, interaction }, options);
    return camel(reply.turn);
  }

  /** Stop the oldest turn that this object sent and that has not ended, running or queued; if there is none, the turn
   * that runs in the chat. With `turn`, stop that one. Resolves when it is final; null if there was nothing to stop. */
  async stop(options: StopOptions & { turn?: Identified } = {}): Promise<StopOutcome | null> {
    const { turn, signal } = options;
    if (turn) return stopAt(this.#wire, `turns/${idOf("turn", turn)}`, options);
    const waiting = [...this.#running]; // some may begin before the server answers
    let ended: StopOutcome | null = null;
    for (const stream of waiting) {
      if (stream.turnId && this.#running.delete(stream) && (ended = await stream.stop(options))) return ended;
    }
    try {
      // A repeated request would also stop the next turn in line.
      ended = await stopAt(this.#wire, `chats/${await this.#resolveId(signal)}`, options, {}, true);
    } catch (problem) {
      if (this.#id || !(problem instanceof ConversationNotFound)) throw problem; // its first turn has not begun
    }
    if (!ended) for (const stream of waiting) ended = await stream.stop(options);
    return ended;
  }

  /** Read the events of a turn, running or not, after event number `after`. Only reads: if the turn failed, it ends
   * with the state `failed`, and does not throw. */
  events(turn: Identified, { after = 0, signal }: CallOptions & { after?: number } = {}): TurnEvents {
    return new TurnEvents(this.#wire, newFollowedTurn({ turn: idOf("turn", turn), last: after }), signal);
  }

  #request(fields: object, options: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer> {
    const { stream, signal, idempotencyKey = freshKey() } = options;
    const after = options.after ? idOf("turn", options.after) : undefined;
    const headers = this.#turnHeaders(options, idempotencyKey);
    const request = this.#turnRequest({ ...fields, after, stream: true }, options, headers);
    const onUpdate = (begun: TurnStream, isOver?: boolean): void => {
      this.#id = begun.chatId ?? this.#id;
      if (isOver) this.#running.delete(begun);
    };
    const isFresh = !options.idempotencyKey;
    const { beforeRetry } = options;
    const turnStream = new TurnStream(this.#wire, idempotencyKey, request, signal, onUpdate, isFresh, beforeRetry);
    this.#running.add(turnStream);
    return stream ? turnStream : turnStream.answer();
  }

  #turnHeaders(options: TurnOptions, idempotencyKey: string | undefined): Record<string, string | undefined> {
    const headers: Record<string, string | undefined> = idempotencyHeader(idempotencyKey);
    for (const policy of ["Busy", "Stop", "Failure", "Disconnect"] as const) {
      headers[`x-turn-on-${policy}`] = options[`on${policy}`];
    }
    if (options.mustExist) headers["x-conversation-expect"] = "continued";
    return headers;
  }

  async #turnRequest(fields: object, options: TurnOptions, headers: ApiRequest["headers"]): Promise<ApiRequest> {
    const { model, reset, interaction, instructions, primer, context, settings } = options;
    const more = { reset, interaction, instructions, primer, context, settings };
    // Encoded once: every retry sends the same bytes.
    const body = JSON.stringify({ model: model ?? (await this.#wire.model()), ...fields, ...more });
    return { path: "/api/turns", headers, body };
  }

  #target(): object {
    return this.#id ? { chat: this.#id } : this.#keyTarget();
  }

  #keyTarget(): object {
    return { conversation_key: this.conversationKey, scope: this.scope ?? undefined };
  }

  /** Read the chat without its turns. */
  async info(options: CallOptions = {}): Promise<ChatInfo> {
    return (await this.read({ limit: 1, ...options })).chat;
  }

  /** Read some turns, the oldest first: the last ones, or those before a number. */
  async read(options: CallOptions & { before?: number; limit?: number; branch?: Identified } = {}): Promise<ChatPage> {
    const { before: end, limit = 50, branch, signal } = options;
    const query = queryOf({ before: end, limit, branch: branch && idOf("branch", branch) });
    const { turns, before, attempts, ...chat } = await this.#json<RawChatPage & ChatInfo>(signal, query);
    return { chat, turns: camels(turns), before, attempts: camels(attempts) };
  }

  /** Read all turns, the newest first, page by page. Without a named branch, those of the branch shown when the first
   * page is read, even if the chat shows another one later. */
  turns(options: CallOptions & { branch?: Identified; limit?: number } = {}): Pages<Turn> {
    return new Pages(async (cursor, limit = 50) => {
      let [before, branch] = cursor?.split(" ") ?? [];
      const query = { ...options, limit, ...(before && { before: Number(before) }) };
      const page = await this.read({ ...query, ...(branch && { branch }) }).catch((problem) => {
        if (!branch || !(problem instanceof BranchNotFound)) throw problem;
        // The branch is gone; or this caller came by a share link and cannot name branches.
        branch = "";
        return this.read(query);
      });
      if (!cursor && !options.branch) branch = page.chat.branch;
      return { data: [...page.turns].reverse(), next: page.before ? `${page.before} ${branch ?? ""}` : null };
    }, options.limit);
  }

  /** List the branches, the newest first. */
  branches({ signal }: CallOptions = {}): Pages<Branch> {
    return new Pages(async (before, limit) => {
      const reply = await this.#json<Listed>(signal, "/branches" + queryOf({ before, limit }));
      return { ...reply, data: camels(reply.data) };
    });
  }

  /** Read what a model would be shown now, and its size in tokens: of the whole history, of the `last` turns, or of as
   * many as fit into a `budget` of tokens; with `after`, as after that turn. */
  async context({
    last,
    budget,
    after,
    signal,
  }: CallOptions & { last?: number; budget?: number; after?: Identified } = {}): Promise<ChatContext> {
    const query = queryOf({ last, budget, after: after === undefined ? undefined : idOf("turn", after) });
    return camel<ChatContext>(await this.#json(signal, `/context${query}`));
  }

  /** Read the turns in the place of this one, itself included, the oldest first. */
  async siblings(turn: Identified, { signal }: CallOptions = {}): Promise<Sibling[]> {
    const reply = await this.#json<Listed>(signal, `/turns/${idOf("turn", turn)}/siblings`);
    return camels<Sibling>(reply.data).map((each) => ({ ...each, turn: camel(each.turn) }));
  }

  /** Export the chat as lines of a file: for `client.importChats`, or Markdown for people. Throws ServerUnavailable if
   * it breaks off: then it is incomplete. */
  async *export(
    options: CallOptions & { format?: "jsonl" | "markdown" } = {},
  ): AsyncGenerator<string, void, undefined> {
    const { format, signal } = options;
    yield* linesOf(this.#wire, `/api/chats/${await this.#resolveId(signal)}/export${queryOf({ format })}`, signal);
  }

  /** Change details in one transaction; with a revision, only if that is still current. Otherwise throws
   * RevisionConflict, with the current chat in `details.chat`. */
  update(changes: ChatChanges, options: CallOptions & { revision?: number } = {}): Promise<ChatInfo> {
    const { revision, signal } = options;
    const match = revision === undefined ? revision : `"${revision}"`;
    return this.#json(signal, "", changes, { "if-match": match }, "PATCH");
  }

  rename(title: string | null, options?: CallOptions & { revision?: number }): Promise<ChatInfo> {
    return this.update({ title }, options);
  }

  pin(pinned = true, options?: CallOptions): Promise<ChatInfo> {
    return this.update({ pinned }, options);
  }

  archive(archived = true, options?: CallOptions): Promise<ChatInfo> {
    return this.update({ archived }, options);
  }

  /** Show items of a committed turn to models of later turns and to the user, or hide them; by their places through
   * `input` and then `output`, or all. A flag left out stays. A call and its result are hidden together. */
  async flag(turn: Identified, options: FlagOptions): Promise<TurnFlags> {
    const { signal, items, toModel, toUser } = options;
    const fields = { items, to_model: toModel, to_user: toUser };
    return this.#json(signal, `/turns/${idOf("turn", turn)}`, fields, undefined, "PATCH");
  }

  /** Start a chat with the history of this one, up to a turn or to its end. */
  async fork(options: ForkOptions = {}): Promise<Chat> {
    const { at, title, metadata, internal, expiresAfter: expires_after } = options;
    const fields = { turn: at && idOf("turn", at), title, metadata, internal, expires_after };
    return new Chat(this.#wire, await this.#move("/fork", fields, options));
  }

  /** Show another branch, and continue there. */
  switch(branch: Identified, options: MoveOptions = {}): Promise<ChatInfo> {
    return this.#move("/switch", { branch: idOf("branch", branch) }, options);
  }

  /** Take back the last turn; with `turn`, only if that is the last. Otherwise throws HistoryDiverged. */
  undo(options: MoveOptions & { turn?: Identified; forget?: boolean } = {}): Promise<ChatInfo> {
    const { turn, forget } = options;
    return this.#move("/undo", { turn: turn && idOf("turn", turn), forget }, options);
  }

  #move<Shape = ChatInfo>(verb: string, fields: object, options: MoveOptions): Promise<Shape> {
    const { idempotencyKey, onBusy, signal } = options;
    return this.#json(signal, verb, fields, { ...idempotencyHeader(idempotencyKey), "x-turn-on-busy": onBusy });
  }

  /** Delete it; it can be restored for a while, unless purged. */
  async delete({ purge, signal }: CallOptions & { purge?: boolean } = {}): Promise<void> {
    await this.#json(signal, queryOf({ purge }), undefined, undefined, "DELETE");
  }

  /** Restore it after it was deleted. */
  restore({ signal }: CallOptions = {}): Promise<ChatInfo> {
    return this.#json(signal, "/restore", {});
  }

  async #json<Shape>(
    signal: AbortSignal | undefined,
    rest: string,
    fields?: object,
    headers?: ApiRequest["headers"],
    method?: ApiRequest["method"],
  ): Promise<Shape> {
    const path = `/api/chats/${await this.#resolveId(signal)}${rest}`;
    return this.#wire.json({ method, path, headers, fields }, signal);
  }

  /** Return the id, looked up if only the conversationKey is known. */
  async #resolveId(signal: AbortSignal | undefined): Promise<string> {
    if (this.#id) return this.#id;
    const path = "/api/chats" + queryOf(this.#keyTarget());
    const [found] = (await this.#wire.json<{ data: { id: string }[] }>({ path }, signal)).data;
    if (!found) throw errorOf("conversation_not_found", "No chat has that conversationKey.");
    return (this.#id = found.id);
  }
}

export interface FlagOptions extends CallOptions {
  /** Default: all items of the turn. */
  items?: readonly number[];
  toModel?: boolean;
  toUser?: boolean;
}

export interface ForkOptions extends CallOptions {
  /** The last turn that both share. */
  at?: Identified;
  title?: string;
  metadata?: Readonly<Record<string, string>>;
  /** For programs: no list, search or change shows it. */
  internal?: boolean;
  /** Seconds without use after which it expires. */
  expiresAfter?: number;
  idempotencyKey?: string;
}

/** Options of undo and switch. */
export interface MoveOptions extends CallOptions {
  onBusy?: OnBusy;
  idempotencyKey?: string;
}

/** Options of append. */
export interface AppendOptions extends MoveOptions {
  /** Stored with the turn. */
  details?: Readonly<Record<string, unknown>>;
  /** `false`: it postpones neither expiry nor a reset. */
  interaction?: boolean;
}

interface Listed {
  readonly data: readonly object[];
  readonly next: string | null;
}

interface RawChatPage {
  readonly turns: readonly object[];
  readonly before: number | null;
  readonly attempts: readonly object[];
}

/** Build the query, without undefined fields. */
export function queryOf(fields: object): string {
  return "?" + new URLSearchParams(withoutUndefined(fields));
}

/** Build the header that makes a request happen once, under this key or a fresh one. */
export function idempotencyHeader(idempotencyKey: string = freshKey()): { "idempotency-key": string } {
  return { "idempotency-key": encodeURIComponent(idempotencyKey) };
}

/** Read the lines of a file. The request is repeated only before the first line. */
export async function* linesOf(
  wire: Wire,
  path: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<string, void, undefined> {
  const read = async ({ pieces }: Reply): Promise<[string | void, Reply["pieces"]]> => [
    (await pieces.next()).value,
    pieces,
  ];
  const [first, rest] = await wire.ask({ path }, signal, read);
  const cut = lineCutter();
  try {
    if (first) yield* cut(first);
    for await (const piece of rest) yield* cut(piece);
  } finally {
    void rest.return();
  }
  const [last] = cut("\n");
  if (last) yield last;
}
