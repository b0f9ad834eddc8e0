/** One chat: its turns, its branches, and what people say of it. */

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
  Ended,
  Input,
  OnBusy,
  OnDisconnect,
  OnFailure,
  OnStop,
  Sibling,
  Turn,
} from "./shapes.js";
import { lineCutter } from "./server-sent-events.js";
import { newFollowedTurn, stopAt, TurnEvents, TurnStream, type StopOptions } from "./turn-stream.js";
import { defined, type Asked, type CallOptions, type Reply, type Wire } from "./wire.js";

/** What may be said of a turn besides its input. */
export interface TurnOptions extends CallOptions {
  /** Who answers. */
  model?: string;
  /** In force from this turn on; an empty text ends those in force. */
  instructions?: Input;
  /** A history that is shown to the model before what is stored, in this turn only. It is never stored. */
  primer?: Input;
  /** What else the model is asked with: `temperature`, `tools`, … */
  settings?: Readonly<Record<string, unknown>>;
  /** While another turn runs. */
  onBusy?: OnBusy;
  /** What becomes of it when it is stopped. */
  onStop?: OnStop;
  /** And when it fails. */
  onFailure?: OnFailure;
  /** And when nobody reads it any more. */
  onDisconnect?: OnDisconnect;
  /** Refuse to make a chat: one opened by a conversationKey that has none is an error then. */
  mustExist?: boolean;
  /** Names the request, so that it happens once however often it is sent; else a fresh one is made. */
  idempotencyKey?: string;
  /** Waited for before it is sent once more, if no server has begun it: who sends several has them get there in
   * order. */
  beforeRetry?: () => Promise<void>;
}

/** The same, for events as they come. */
export type StreamOptions = TurnOptions & { stream: true };
/** The same, for an answer once it is whole. */
export type AnswerOptions = TurnOptions & { stream?: false };

/** What is to be different about a chat; what is left out stays as it is. */
export interface ChatChanges {
  /** Null or empty: called by its first words again. */
  title?: string | null;
  metadata?: Readonly<Record<string, string>> | null;
  tags?: readonly string[] | null;
  pinned?: boolean;
  archived?: boolean;
}

/** Which chat: by its id, or whichever has a conversationKey in a scope. */
export type ChatName = { id: string } | { conversationKey: string; scope?: string };

/** Made by `client.chats`. Any number may be made of one chat; they hold nothing but its name. */
export class Chat {
  declare readonly conversationKey: string | null;
  declare readonly scope: string | null;
  readonly #wire: Wire;
  readonly #goesByKey: boolean;
  /** What was asked for here, and has not ended as far as is known. */
  readonly #asked = new Set<TurnStream>();
  #id: string | null;

  /** Throws InvalidId, or InvalidInput if it names nothing. */
  constructor(wire: Wire, name: Partial<Pick<ChatInfo, "id" | "conversationKey" | "scope">>) {
    const { id, conversationKey = null, scope = null } = name;
    this.#goesByKey = id === undefined;
    if (this.#goesByKey && !conversationKey) {
      throw errorOf("invalid_input", "Name the chat by id or conversationKey.");
    }
    this.#wire = wire;
    this.#id = id === undefined ? null : idOf("conv", id);
    this.conversationKey = conversationKey;
    this.scope = scope;
  }

  /** Null until it is known, of a chat that was opened by its conversationKey: then, where the last turn went. */
  get id(): string | null {
    return this.#id;
  }

  // Turns.

  /** Ask for a turn behind the last one. It happens once, whatever becomes of connections. */
  send(input: Input, options: StreamOptions): TurnStream;
  send(input: Input, options?: AnswerOptions): Promise<Answer>;
  send(input: Input, options?: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer>;
  send(input: Input, options: TurnOptions & { stream?: boolean } = {}): TurnStream | Promise<Answer> {
    return this.#ask({ ...(this.#goesByKey ? this.#byKey() : this.#place()), input }, options);
  }

  /** Ask for a turn in the place of another, on a branch of its own. */
  edit(turn: Identified, input: Input, options: StreamOptions): TurnStream;
  edit(turn: Identified, input: Input, options?: AnswerOptions): Promise<Answer>;
  edit(turn: Identified, input: Input, options?: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer>;
  edit(turn: Identified, input: Input, options: TurnOptions & { stream?: boolean } = {}): TurnStream | Promise<Answer> {
    return this.#ask({ ...this.#place(), input, replaces: idOf("turn", turn) }, options);
  }

  /** Ask the input of a turn once more; without one, of the last. */
  regenerate(turn: Identified | null | undefined, options: StreamOptions): TurnStream;
  regenerate(turn?: Identified | null, options?: AnswerOptions): Promise<Answer>;
  regenerate(turn?: Identified | null, options?: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer>;
  regenerate(turn?: Identified | null, options: TurnOptions & { stream?: boolean } = {}): TurnStream | Promise<Answer> {
    return this.#ask({ ...this.#place(), regenerates: turn ? idOf("turn", turn) : true }, options);
  }

  /** Stop a turn, or whichever runs in this chat; where none does, what was asked for here, as soon as it begins.
   * Resolves when it is final; null if there was nothing to stop. */
  async stop(options: StopOptions & { turn?: Identified } = {}): Promise<Ended | null> {
    const { turn, signal } = options;
    if (turn) return stopAt(this.#wire, `turns/${idOf("turn", turn)}`, options);
    const waiting = [...this.#asked]; // some of which may have begun when the server has answered
    let ended: Ended | null = null;
    for (const stream of waiting) {
      if (stream.turnId && this.#asked.delete(stream) && (ended = await stream.stop(options))) return ended;
    }
    try {
      // Asked again after a lost answer, it would stop the next turn in line, too.
      ended = await stopAt(this.#wire, `chats/${await this.#known(signal)}`, options, true);
    } catch (problem) {
      if (this.#id || !(problem instanceof ConversationNotFound)) throw problem; // its first one has not begun
    }
    if (!ended) for (const stream of waiting) ended = await stream.stop(options);
    return ended;
  }

  /** The events of a turn, running or not, behind the one of this number. */
  events(turn: Identified, { after = 0, signal }: CallOptions & { after?: number } = {}): TurnEvents {
    return new TurnEvents(this.#wire, newFollowedTurn({ turn: idOf("turn", turn), last: after }), signal);
  }

  #ask(said: object, options: TurnOptions & { stream?: boolean }): TurnStream | Promise<Answer> {
    const { stream, signal, idempotencyKey = freshKey() } = options;
    const { model, instructions, primer, settings } = options;
    const headers: Record<string, string | undefined> = onceUnder(idempotencyKey);
    for (const policy of ["Busy", "Stop", "Failure", "Disconnect"] as const) {
      headers[`x-turn-on-${policy}`] = options[`on${policy}`];
    }
    if (options.mustExist) headers["x-conversation-expect"] = "continued";
    const body = async (): Promise<Asked> => ({
      path: "/api/turns",
      headers,
      // Made once: whatever happens, the same bytes are sent.
      body: JSON.stringify({
        model: model ?? (await this.#wire.model()),
        ...said,
        instructions,
        primer,
        settings,
        stream: true,
      }),
    });
    const found = (begun: TurnStream, isOver?: boolean): void => {
      this.#id = begun.chatId ?? this.#id;
      if (isOver) this.#asked.delete(begun);
    };
    const isFresh = !options.idempotencyKey;
    const made = new TurnStream(this.#wire, idempotencyKey, body(), signal, found, isFresh, options.beforeRetry);
    this.#asked.add(made);
    return stream ? made : made.answer();
  }

  #place(): object {
    return this.#id ? { chat: this.#id } : this.#byKey();
  }

  #byKey(): object {
    return { conversation_key: this.conversationKey, scope: this.scope ?? undefined };
  }

  // Reading.

  /** What is known of it besides its turns. */
  async info(options: CallOptions = {}): Promise<ChatInfo> {
    return (await this.read({ limit: 1, ...options })).chat;
  }

  /** Some of its turns, the oldest of them first: the last ones, or those before a number. */
  async read(options: CallOptions & { before?: number; limit?: number; branch?: Identified } = {}): Promise<ChatPage> {
    const { before: end, limit = 50, branch, signal } = options;
    const query = queryOf({ before: end, limit, branch: branch && idOf("branch", branch) });
    const { turns, before, attempts, ...chat } = await this.#json<Told & ChatInfo>(signal, query);
    return { chat, turns: camels(turns), before, attempts: camels(attempts) };
  }

  /** All its turns, the newest first, read page by page: where no branch is named, those of the one that it shows when
   * the first page is read, whatever it shows later. */
  turns(options: CallOptions & { branch?: Identified; limit?: number } = {}): Pages<Turn> {
    return new Pages(async (cursor, limit = 50) => {
      let [before, branch] = cursor?.split(" ") ?? [];
      const asked = { ...options, limit, ...(before && { before: Number(before) }) };
      const page = await this.read({ ...asked, ...(branch && { branch }) }).catch((problem) => {
        if (!branch || !(problem instanceof BranchNotFound)) throw problem;
        // It is gone; or this is a reader by a link, who sees what the chat shows, and names no branch.
        branch = "";
        return this.read(asked);
      });
      if (!cursor && !options.branch) branch = page.chat.branch;
      return { data: [...page.turns].reverse(), next: page.before ? `${page.before} ${branch ?? ""}` : null };
    }, options.limit);
  }

  /** Its branches, the last made first. */
  branches({ signal }: CallOptions = {}): Pages<Branch> {
    return new Pages(async (before, limit) => {
      const told = await this.#json<Listed>(signal, "/branches" + queryOf({ before, limit }));
      return { ...told, data: camels(told.data) };
    });
  }

  /** The turns that were made in the place of one that it shows, itself included, the first made first. */
  async siblings(turn: Identified, { signal }: CallOptions = {}): Promise<Sibling[]> {
    const told = await this.#json<Listed>(signal, `/turns/${idOf("turn", turn)}/siblings`);
    return camels<Sibling>(told.data).map((each) => ({ ...each, turn: camel(each.turn) }));
  }

  /** The chat as the lines of a file: for `client.importChats`, or Markdown for people. One that is cut off while it is
   * read throws ServerUnavailable: what was read is not whole. */
  async *export(
    options: CallOptions & { format?: "jsonl" | "markdown" } = {},
  ): AsyncGenerator<string, void, undefined> {
    const { format, signal } = options;
    yield* linesOf(this.#wire, `/api/chats/${await this.#known(signal)}/export${queryOf({ format })}`, signal);
  }

  // What people say of it.

  /** Change it in one step; with a revision, only if that is still the one that was read: else RevisionConflict, whose
   * `details.chat` is how it is by now. */
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

  // Which turns it shows.

  /** Make a chat that begins as this one does, up to a turn or to the last. */
  async fork(options: CallOptions & { at?: Identified; title?: string; idempotencyKey?: string } = {}): Promise<Chat> {
    const { at, title } = options;
    return new Chat(this.#wire, await this.#move("/fork", { turn: at && idOf("turn", at), title }, options));
  }

  /** Show another branch. */
  switch(branch: Identified, options: MoveOptions = {}): Promise<ChatInfo> {
    return this.#move("/switch", { branch: idOf("branch", branch) }, options);
  }

  /** Take back the last turn. Name it, and of two who do so at once one is told HistoryDiverged. */
  undo(options: MoveOptions & { turn?: Identified; forget?: boolean } = {}): Promise<ChatInfo> {
    const { turn, forget } = options;
    return this.#move("/undo", { turn: turn && idOf("turn", turn), forget }, options);
  }

  #move(verb: string, said: object, { idempotencyKey, onBusy, signal }: MoveOptions): Promise<ChatInfo> {
    return this.#json(signal, verb, said, { ...onceUnder(idempotencyKey), "x-turn-on-busy": onBusy });
  }

  // Its end.

  /** Delete it, so that it can be restored for a while; or for good. */
  async delete({ purge, signal }: CallOptions & { purge?: boolean } = {}): Promise<void> {
    await this.#json(signal, queryOf({ purge }), undefined, undefined, "DELETE");
  }

  /** Bring it back. */
  restore({ signal }: CallOptions = {}): Promise<ChatInfo> {
    return this.#json(signal, "/restore", {});
  }

  async #json<Shape>(
    signal: AbortSignal | undefined,
    rest: string,
    said?: object,
    headers?: Asked["headers"],
    method?: Asked["method"],
  ): Promise<Shape> {
    const path = `/api/chats/${await this.#known(signal)}${rest}`;
    return this.#wire.json({ method, path, headers, said }, signal);
  }

  /** Its id, looked up where only the conversationKey is known. */
  async #known(signal: AbortSignal | undefined): Promise<string> {
    if (this.#id) return this.#id;
    const path = "/api/chats" + queryOf(this.#byKey());
    const [found] = (await this.#wire.json<{ data: { id: string }[] }>({ path }, signal)).data;
    if (!found) throw errorOf("conversation_not_found", "No chat has that conversationKey.");
    return (this.#id = found.id);
  }
}

/** What may be said of an undo and a switch. */
export interface MoveOptions extends CallOptions {
  onBusy?: OnBusy;
  idempotencyKey?: string;
}

interface Listed {
  readonly data: readonly object[];
  readonly next: string | null;
}

interface Told {
  readonly turns: readonly object[];
  readonly before: number | null;
  readonly attempts: readonly object[];
}

/** What stands behind the path; what is undefined is left out. */
export function queryOf(fields: object): string {
  return "?" + new URLSearchParams(defined(fields));
}

/** The header that makes a request happen once, under this name or a fresh one. */
export function onceUnder(idempotencyKey: string = freshKey()): { "idempotency-key": string } {
  return { "idempotency-key": encodeURIComponent(idempotencyKey) };
}

/** The lines of a file. It is asked for again until the first ones have come. */
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
