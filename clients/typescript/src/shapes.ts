/** What the server tells, as types. Times are milliseconds since 1970. Later versions may add fields. */

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

/** What is new: a text, or items of the Responses shape, or chat messages; results of tools among them. */
export type Input = string | readonly (string | Readonly<Record<string, unknown>>)[];

export type OnBusy = "queue" | "reject" | "interrupt" | "rollback";
export type OnStop = "keep" | "discard";
export type OnFailure = "settle" | "keep" | "forget";
export type OnDisconnect = "continue" | "keep" | "discard";
export type AttemptState = "running" | "completed" | "kept" | "failed" | "discarded" | "settled" | "resumed";

/** What is known of a chat besides its history. */
export interface ChatInfo {
  readonly id: string;
  readonly conversationKey: string | null;
  readonly scope: string | null;
  readonly title: string | null;
  /** Who gave it its title. */
  readonly namedBy: "person" | "words" | "model" | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly tags: readonly string[];
  readonly pinned: boolean;
  readonly archived: boolean;
  /** Of title, metadata, tags, pinned and archived. */
  readonly revision: number;
  /** The branch that it shows. */
  readonly branch: string;
  readonly createdAt: number;
  readonly touchedAt: number;
  /** When one that is deleted goes for good. */
  readonly purgeAt: number | null;
  /** How many turns it shows. Not told of chats that were found by a search, nor of restored ones. */
  readonly turnCount?: number;
  /** How its last text begins. */
  readonly preview?: string;
  readonly isRunning?: boolean;
  /** Where what was sought stands; only of chats that were found by a search. */
  readonly snippet?: string;
  readonly marks?: readonly Mark[];
  /** The conversation_key that it had, where that names another chat by now; only of restored ones. */
  readonly formerConversationKey?: string | null;
}

/** The first character of what was sought in a snippet, and the one behind the last; see `cutAt`. */
export type Mark = readonly [start: number, end: number];

/** A chat that was found, and where. */
export interface Hit {
  readonly chat: ChatInfo;
  /** Where it was found; null: in the title. */
  readonly turn: string | null;
  /** The branch that shows it. */
  readonly branch: string;
  /** Plain text that somebody wrote, on one line: escape it before it is shown. */
  readonly snippet: string;
  readonly marks: readonly Mark[];
}

/** A turn of the history. */
export interface Turn {
  readonly id: string;
  readonly number: number;
  /** `interrupted`: kept as far as it got. `settled`: it failed, and what its tools did is kept. */
  readonly kind: "completed" | "interrupted" | "settled";
  readonly parent: string | null;
  readonly createdAt: number;
  readonly committedAt: number;
  readonly input: readonly Item[];
  readonly output: readonly Item[];
  /** The places of items that are not for the user's eyes, counted from 0 through `input` and then `output`. */
  readonly hidden: readonly number[];
  /** What its runner left with it, such as model and usage. */
  readonly details: Readonly<Record<string, unknown>>;
}

export interface Failure {
  readonly code: string;
  readonly message: string;
}

/** An attempt that runs, failed or was discarded. */
export interface Attempt {
  readonly id: string;
  readonly state: AttemptState;
  readonly failure: Failure | null;
  readonly createdAt: number;
  readonly endedAt: number | null;
  readonly input: readonly Item[];
  readonly steps: readonly Item[];
  readonly partial: string;
}

/** A page of turns, the oldest first. */
export interface ChatPage {
  readonly chat: ChatInfo;
  readonly turns: readonly Turn[];
  /** Ask for the turns before it; null: there are none. */
  readonly before: number | null;
  readonly attempts: readonly Attempt[];
}

export interface Branch {
  readonly id: string;
  readonly isCurrent: boolean;
  /** How many turns it has, and how many of them from the branch it was made from. */
  readonly turns: number;
  readonly shared: number;
  /** The turn it was made from, and its last one. */
  readonly base: string | null;
  readonly head: string | null;
  readonly isRunning: boolean;
  readonly preview: string;
}

export interface Sibling {
  readonly turn: Turn;
  /** A branch that shows it. */
  readonly branch: string;
  readonly isCurrent: boolean;
}

/** A turn that was committed. */
export interface Answer {
  readonly turn: Turn;
  readonly chat: ChatInfo;
  readonly branch: string;
  /** Whether its chat was made by it, was there, or shows another branch with it. */
  readonly state: "created" | "continued" | "branched";
  /** Whether it had been committed before it was asked for. */
  readonly isReplayed: boolean;
  /** What the assistant said. */
  readonly text: string;
}

/** How a turn ended that was stopped. */
export interface Ended {
  /** Its id. */
  readonly turn: string;
  readonly state: AttemptState;
  /** Whether anything of it is in the history. */
  readonly committed: boolean;
  readonly failure: Failure | null;
}

/** What a turn tells, numbered from 1 without gaps, each once. */
export type TurnEvent =
  | { readonly type: "turn.started"; readonly number: number }
  | { readonly type: "text.delta"; readonly number: number; readonly text: string }
  | { readonly type: "item.done"; readonly number: number; readonly item: Item }
  | {
      readonly type: "turn.finished";
      readonly number: number;
      readonly state: AttemptState;
      readonly failure?: Failure | null;
    }
  /** The process that ran it died, and another attempt runs, or less was kept than was told: what was told so far is
   * void, and numbers begin at 1 again. */
  | { readonly type: "turn.restarted"; readonly turn: string; readonly attempt: number };

interface ChangeFacts {
  /** Go on behind it: `client.events({ after })`. */
  readonly position: string;
  readonly at: number;
}

interface AboutChat extends ChangeFacts {
  readonly chat: string;
  readonly scope: string | null;
}

interface ChatTold extends AboutChat {
  readonly branch: string;
  readonly title: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly tags: readonly string[];
  readonly pinned: boolean;
  readonly archived: boolean;
  readonly revision: number;
}

interface AboutTurn extends AboutChat {
  readonly turn: string;
}

/** What happened to the chats of an owner. After `gap`, read everything anew: something was missed. */
export type Change =
  | (ChangeFacts & { readonly type: "start" | "gap" })
  | (ChatTold & { readonly type: "chat.created" | "chat.changed" | "chat.restored" | "chat.switched" })
  | (AboutChat & { readonly type: "chat.deleted"; readonly reason: string })
  | (AboutTurn & { readonly type: "turn.queued" | "turn.running" | "turn.stopped" | "turn.withdrawn" })
  | (AboutTurn & {
      readonly type: "turn.committed";
      readonly outcome: "completed" | "interrupted" | "settled";
      readonly branch: string;
    })
  | (AboutTurn & { readonly type: "turn.failed"; readonly code: string });

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
  /** Tokens that one answer may have. */
  readonly maxTokens: number | null;
  /** Answers that one request may ask for. */
  readonly n: number | null;
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
  /** Turns that all visitors together may have open; so with what follows. */
  readonly turns: number | null;
  readonly turnsPerMinute: number | null;
  readonly bytes: number | null;
  readonly chats: number | null;
  readonly storedBytes: number;
  readonly storedChats: number;
}

/** What a visitor gets for the code of a link. */
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
  /** The id of the turn, in the file. */
  readonly turn?: string | null;
  readonly turns?: number;
  readonly why?: string;
}
