/** Shapes of the server's responses. Times are milliseconds since 1970. Later versions may add fields. */

/** An item of a turn, of the shape of the OpenAI Responses API: a message, a call, a result, reasoning. */
export interface Item {
  readonly type: string;
  readonly role?: string;
  readonly content?: string | readonly ItemPart[];
  readonly [field: string]: unknown;
}

export interface ItemPart {
  readonly type: string;
  readonly text?: string;
  readonly [field: string]: unknown;
}

/** A text, or items of the Responses shape, or chat messages; also results of tools. */
export type Input = string | readonly (string | Readonly<Record<string, unknown>>)[];

export type OnBusy = "queue" | "reject" | "interrupt" | "rollback";
export type OnStop = "keep" | "discard";
export type OnFailure = "settle" | "keep" | "forget";
export type OnDisconnect = "yield" | "continue" | "keep" | "discard";
/** When a conversationKey moves to a fresh chat: after so many seconds without use, or at this hour of a time zone, by
 * default UTC. */
export type ResetPolicy =
  "never" | `idle ${number}` | `daily ${number}` | `daily ${number} ${string}` | `idle ${number}, daily ${string}`;
export type AttemptState = "running" | "completed" | "kept" | "failed" | "discarded" | "settled" | "resumed";

/** A chat without its history. */
export interface ChatInfo {
  readonly id: string;
  readonly conversationKey: string | null;
  readonly scope: string | null;
  readonly title: string | null;
  /** The source of its title. */
  readonly namedBy: "person" | "words" | "model" | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly tags: readonly string[];
  readonly pinned: boolean;
  readonly archived: boolean;
  /** Whether it is for programs: no list shows it. */
  readonly internal: boolean;
  /** Counts changes of title, metadata, tags, pinned and archived. */
  readonly revision: number;
  /** The branch that it shows. */
  readonly branch: string;
  readonly createdAt: number;
  readonly touchedAt: number;
  /** Seconds without use after which it expires. */
  readonly expiresAfter: number | null;
  /** When its conversationKey moves to a fresh chat; see ResetPolicy. */
  readonly reset: string;
  /** When a deleted one is removed. */
  readonly purgeAt: number | null;
  /** The number of turns it shows. Absent in search results and restored chats. */
  readonly turnCount?: number;
  /** The beginning of its last text. */
  readonly preview?: string;
  readonly isRunning?: boolean;
  /** The passage that a search found; only in search results. */
  readonly snippet?: string;
  readonly marks?: readonly Mark[];
  /** The conversation_key that it had, if another chat has it now; only for restored chats. */
  readonly formerConversationKey?: string | null;
}

/** First character of a match in a snippet, and the one after its last; see `cutAt`. */
export type Mark = readonly [start: number, end: number];

/** A chat that a search found, and where. */
export interface Hit {
  readonly chat: ChatInfo;
  /** The turn with the match; null: the title. */
  readonly turn: string | null;
  /** A branch that contains it. */
  readonly branch: string;
  /** Plain text from users or models, on one line: escape it before showing it. */
  readonly snippet: string;
  readonly marks: readonly Mark[];
}

/** A turn of the history. */
export interface Turn {
  readonly id: string;
  readonly number: number;
  /** `interrupted`: kept as far as it got. `settled`: it failed, and the effects of its tools are kept. */
  readonly kind: "completed" | "interrupted" | "settled";
  readonly parent: string | null;
  readonly createdAt: number;
  readonly committedAt: number;
  readonly input: readonly Item[];
  readonly output: readonly Item[];
  /** Places of items that are hidden from the user, counted from 0 through `input` and then `output`. */
  readonly hidden: readonly number[];
  /** Likewise, of items that the model of a later turn does not receive. */
  readonly hiddenFromModel: readonly number[];
  /** Set by its runner, such as model and usage. */
  readonly details: Readonly<Record<string, unknown>>;
}

/** A background turn that waits or runs. */
export interface Job {
  readonly id: string;
  readonly chat: string;
  /** `running` also while it waits to be resumed. */
  readonly state: "queued" | "running";
  readonly createdAt: number;
  /** How many turns of its chat run or wait before it. */
  readonly before: number;
  /** The items that were sent; none if they are larger than 16 KiB. */
  readonly input: readonly Item[];
  /** How often it was resumed after a crash. */
  readonly resumes: number;
  /** Model, tools, settings and metadata of the request. */
  readonly details: Readonly<Record<string, unknown>>;
}

/** The hidden items of a turn, as in the turn itself. */
export interface TurnFlags {
  readonly turn: string;
  readonly hidden: readonly number[];
  readonly hiddenFromModel: readonly number[];
}

export interface Failure {
  readonly code: string;
  readonly message: string;
}

/** An attempt that runs, failed or was discarded. */
export interface Attempt {
  readonly id: string;
  readonly state: AttemptState;
  /** Of an edit or a regeneration: the turn in whose place it is shown, and all after it. Null for a new message. */
  readonly replaces: string | null;
  readonly failure: Failure | null;
  readonly createdAt: number;
  readonly endedAt: number | null;
  readonly input: readonly Item[];
  readonly steps: readonly Item[];
  /** Empty while the turn runs: read its text from `chat.events`. After a failure: the text so far. */
  readonly partial: string;
  /** Model, tools, settings and metadata of the request. */
  readonly details: Readonly<Record<string, unknown>>;
}

/** A page of turns, the oldest first. */
export interface ChatPage {
  readonly chat: ChatInfo;
  readonly turns: readonly Turn[];
  /** Cursor of earlier turns; null: there are none. */
  readonly before: number | null;
  /** The running attempt and failed ones, the newest first. A queued turn is not among them. */
  readonly attempts: readonly Attempt[];
}

export interface Branch {
  readonly id: string;
  readonly isCurrent: boolean;
  /** The number of its turns, and how many of them it shares with its parent branch. */
  readonly turns: number;
  readonly shared: number;
  /** The turn it starts from, and its last one. */
  readonly base: string | null;
  readonly head: string | null;
  readonly isRunning: boolean;
  /** Whether a turn made it to run beside others, and no switch has shown it. */
  readonly isSide: boolean;
  readonly preview: string;
}

export interface ChatContext {
  /** Turns of the history, shown or not. */
  readonly turns: number;
  /** Tokens of what is shown, estimated. */
  readonly tokens: number;
  readonly budget: number | null;
  readonly left: number | null;
  /** What a model would be shown: instructions first, then the history. */
  readonly items: readonly Item[];
}

export interface Sibling {
  readonly turn: Turn;
  readonly branch: string;
  readonly isCurrent: boolean;
}

/** A committed turn. */
export interface Answer {
  readonly turn: Turn;
  readonly chat: ChatInfo;
  readonly branch: string;
  /** Whether the turn created its chat, continued it, or made it show another branch. */
  readonly state: "created" | "continued" | "branched";
  /** Whether the same idempotencyKey was answered before. */
  readonly isReplayed: boolean;
  /** The text of the assistant. */
  readonly text: string;
}

/** The end of a stopped turn. */
export interface StopOutcome {
  readonly turn: string;
  readonly state: AttemptState;
  /** Whether some of it was kept. */
  readonly committed: boolean;
  readonly failure: Failure | null;
}

/** Events of a turn, numbered from 1 without gaps, each once. */
export type TurnEvent =
  | { readonly type: "turn.started"; readonly number: number }
  | { readonly type: "text.delta"; readonly number: number; readonly text: string }
  /** Reasoning of the model. Its item is placed before the text that it led to. */
  | { readonly type: "reasoning.delta"; readonly number: number; readonly text: string }
  /** A part of the text in which the model declines to answer. */
  | { readonly type: "refusal.delta"; readonly number: number; readonly text: string }
  /** A call began: `item` has its `call_id` and `name`, and no arguments yet. */
  | { readonly type: "item.added"; readonly number: number; readonly item: Item }
  | { readonly type: "arguments.delta"; readonly number: number; readonly call_id: string; readonly text: string }
  | { readonly type: "item.done"; readonly number: number; readonly item: Item }
  /** The turn continues in another process: all deltas and open calls since the last `item.done` are void. */
  | { readonly type: "turn.resumed"; readonly number: number }
  | {
      readonly type: "turn.finished";
      readonly number: number;
      readonly state: AttemptState;
      readonly failure?: Failure | null;
    }
  /** The process died, and another attempt runs, or less was kept than was sent: text received so far is void, and
   * numbers start at 1 again. */
  | { readonly type: "turn.restarted"; readonly turn: string; readonly attempt: number };

/** What every change has. */
export interface ChangeFacts {
  /** Continue after it: `client.events({ after })`. */
  readonly position: string;
  readonly at: number;
}

/** What a change to a chat has. */
export interface ChatFacts extends ChangeFacts {
  readonly chat: string;
  readonly scope: string | null;
}

/** A chat after a change. */
export interface ChatState extends ChatFacts {
  readonly branch: string;
  readonly title: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly tags: readonly string[];
  readonly pinned: boolean;
  readonly archived: boolean;
  readonly revision: number;
}

/** What a change to a turn has. */
export interface TurnFacts extends ChatFacts {
  readonly turn: string;
}

/** Changes to an owner's chats. After `gap`, read everything again: some changes were missed. */
export type Change =
  | (ChangeFacts & { readonly type: "start" | "gap" })
  | (ChatState & { readonly type: "chat.created" | "chat.changed" | "chat.restored" | "chat.switched" })
  | (ChatFacts & { readonly type: "chat.deleted"; readonly reason: string })
  | (TurnFacts & { readonly type: "turn.queued" | "turn.stopped" | "turn.withdrawn" | "turn.flagged" })
  /** With the branch if that is a side branch, which the chat does not show. */
  | (TurnFacts & { readonly type: "turn.running"; readonly branch?: string })
  | (TurnFacts & {
      readonly type: "turn.committed";
      readonly outcome: "completed" | "interrupted" | "settled";
      readonly branch: string;
    })
  | (TurnFacts & { readonly type: "turn.failed"; readonly code: string });

export interface Model {
  readonly id: string;
  readonly [field: string]: unknown;
}

export type TokenScope = "chats:read" | "chats:write" | "turns:run" | "admin";

export interface Token {
  readonly id: string;
  readonly owner: string;
  readonly name: string;
  readonly scopes: readonly TokenScope[];
  readonly chatScope: string | null;
  readonly chat: string | null;
  readonly models: readonly string[];
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly usedAt: number | null;
  readonly parent: string | null;
  readonly share: string | null;
  /** Maximum tokens of one answer. */
  readonly maxTokens: number | null;
  /** Maximum answers of one request. */
  readonly n: number | null;
  /** Policies of its turns, unless a request chooses, by name: `on_busy`. */
  readonly defaults: Readonly<Record<string, string>>;
}

/** What stored turns of an owner used of a model. */
export interface ModelUsage {
  readonly owner: string;
  /** Null for turns that name no model. */
  readonly model: string | null;
  readonly turns: number;
  /** As models reported them. */
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Of the turns and their event logs. */
  readonly bytes: number;
}

export interface Share {
  readonly id: string;
  readonly kind: "scope" | "chat";
  readonly owner: string;
  readonly name: string;
  readonly scope: string | null;
  readonly chat: string | null;
  readonly models: readonly string[];
  readonly maxUses: number | null;
  readonly uses: number;
  readonly perMinute: number | null;
  /** Seconds. */
  readonly visitorExpiresIn: number | null;
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly parent: string | null;
  readonly maxTokens: number | null;
  readonly n: number | null;
  /** Maximum open turns of all visitors together; the next three are of all visitors, too. */
  readonly turns: number | null;
  readonly turnsPerMinute: number | null;
  readonly bytes: number | null;
  readonly chats: number | null;
  readonly storedBytes: number;
  readonly storedChats: number;
}

/** The result of exchanging the code of a link. */
export interface Visit {
  /** The text of the visitor's token: the `apiKey` of a client. */
  readonly token: string;
  readonly kind: "scope" | "chat";
  readonly name: string;
  readonly owner: string | null;
  readonly scope: string | null;
  readonly chat: string | null;
  readonly models: readonly string[];
  readonly expiresAt: number | null;
}

/** What an import did with one line of its file. */
export interface ImportReport {
  readonly line: number;
  readonly did: "imported" | "unchanged" | "conflict" | "refused" | "renamed" | "repaired" | "dropped";
  readonly chat?: string | null;
  /** The id of the turn in the file. */
  readonly turn?: string | null;
  readonly turns?: number;
  readonly why?: string;
}
