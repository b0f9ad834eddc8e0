/** Turns, events and a server that says what a test has written down. */

import { signal, type Signal } from "@preact/signals";
import type { Attempt, Branch, Change, ChatInfo, ChatPage, Item, Job, Sibling, UnsentMessage } from "turnledger";
import type { Turn, TurnEvent, TurnFlags } from "turnledger";
import { Outbox } from "turnledger/outbox";
import type { ConnectionState } from "../../src/feed/change-feed";
import { Notices } from "../../src/session/notices";
import { MemoryStorage } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";
import type { Session } from "../../src/session/session";
import type { Thread } from "../../src/thread/thread";
import { TabOutbox } from "../../src/thread/outbox";

export function said(text: string, role = "user"): Item {
  return { type: "message", role, content: [{ type: role === "user" ? "input_text" : "output_text", text }] };
}

export function turnOf(number: number, more: Partial<Turn> = {}): Turn {
  return {
    id: `turn_${number}`,
    number,
    kind: "completed",
    parent: number > 1 ? `turn_${number - 1}` : null,
    createdAt: number * 1_000,
    committedAt: number * 1_000 + 500,
    input: [said(`Question ${number}`)],
    output: [said(`Answer ${number}`, "assistant")],
    hidden: [],
    hiddenFromModel: [],
    details: {},
    ...more,
  };
}

export function turnsOf(from: number, to: number): Turn[] {
  return Array.from({ length: to - from + 1 }, (_, at) => turnOf(from + at));
}

export function attemptOf(id: string, more: Partial<Attempt> = {}): Attempt {
  const none = { replaces: null, failure: null, endedAt: null, steps: [], partial: "", details: {} };
  return { id, state: "running", createdAt: 1, input: [said(id)], ...none, ...more };
}

export function jobOf(id: string, before: number, text = id): Job {
  return { id, chat: "conv_1", state: "queued", createdAt: 1, before, input: [said(text)], resumes: 0, details: {} };
}

export const STARTED: TurnEvent = { type: "turn.started", number: 1 };

export function delta(number: number, text: string): TurnEvent {
  return { type: "text.delta", number, text };
}

export function finished(number: number, state: Attempt["state"] = "completed", code?: string): TurnEvent {
  const failure = code === undefined ? null : { code, message: `It was ${code}.` };
  return { type: "turn.finished", number, state, failure };
}

/** A stream that tells what it is given, when it is given it. */
export class MadeUpStream {
  isClosed = false;
  turnId: string | null = null;
  readonly #told: (TurnEvent | Error | null)[] = [];
  #wake: () => void = () => {};

  tell(...events: readonly TurnEvent[]): this {
    this.#told.push(...events);
    this.#wake();
    return this;
  }

  fail(problem: Error): void {
    this.#told.push(problem);
    this.#wake();
  }

  /** Nothing more comes. */
  end(): void {
    this.#told.push(null);
    this.#wake();
  }

  close(): void {
    this.isClosed = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TurnEvent, void, undefined> {
    try {
      for (;;) {
        const next = this.#told.shift();
        if (this.isClosed || next === null) return;
        if (next instanceof Error) throw next;
        if (next) yield next;
        else await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    } finally {
      this.isClosed = true;
    }
  }
}

/** One chat of a server, and what was asked of it. */
export class MadeUpChat {
  id: string | null = "conv_1";
  turns: Turn[] = [];
  attempts: Attempt[] = [];
  jobs: Job[] = [];
  branch = "branch_1";
  branchList: Branch[] = [];
  siblingList: Sibling[] = [];
  problem: Error | null = null;
  title: string | null = null;
  /** What was asked for, in order. */
  readonly asked: { verb: string; said: unknown; name: string; stream: MadeUpStream }[] = [];
  readonly followed: { readonly turn: string; readonly after: number; readonly stream: MadeUpStream }[] = [];
  readonly reads: object[] = [];
  readonly did: unknown[] = [];

  async read(options: { before?: number; limit?: number } = {}): Promise<ChatPage> {
    this.reads.push(options);
    if (this.problem) throw this.problem;
    const { before = Infinity, limit = 50 } = options;
    const turns = this.turns.filter(({ number }) => number < before).slice(-limit);
    const first = turns[0]?.number ?? 1;
    return { chat: this.info, turns, before: first > 1 ? first : null, attempts: this.attempts };
  }

  get info(): ChatInfo {
    return { id: this.id, branch: this.branch, turnCount: this.turns.length, title: this.title } as unknown as ChatInfo;
  }

  send(said: unknown, options: { idempotencyKey: string }): MadeUpStream {
    return this.#ask("send", said, options);
  }

  edit(turn: string, said: unknown, options: { idempotencyKey: string }): MadeUpStream {
    return this.#ask(`edit ${turn}`, said, options);
  }

  regenerate(turn: string, options: { idempotencyKey: string }): MadeUpStream {
    return this.#ask(`regenerate ${turn}`, null, options);
  }

  events(turn: string, { after }: { after: number }): MadeUpStream {
    const stream = new MadeUpStream();
    this.followed.push({ turn, after, stream });
    return stream;
  }

  async stop(options: unknown): Promise<void> {
    this.did.push(["stop", options]);
  }

  async switch(branch: string): Promise<ChatInfo> {
    this.did.push(["switch", branch]);
    return this.info;
  }

  async flag(turn: string, { toModel }: { toModel: boolean }): Promise<TurnFlags> {
    this.did.push(["flag", turn, toModel]);
    if (this.problem) throw this.problem;
    return { turn, hidden: [], hiddenFromModel: toModel ? [] : [0, 1] };
  }

  async undo({ turn }: { turn: string }): Promise<ChatInfo> {
    this.did.push(["undo", turn]);
    this.turns = this.turns.slice(0, -1);
    return this.info;
  }

  async fork({ at, title }: { at: string; title?: string }): Promise<{ id: string }> {
    this.did.push(["fork", at, title]);
    return { id: "conv_fork" };
  }

  branches(): { pages(): AsyncGenerator<{ data: Branch[]; next: null }> } {
    this.did.push(["branches"]);
    const data = this.branchList;
    return {
      async *pages() {
        yield { data, next: null };
      },
    };
  }

  async siblings(turn: string): Promise<Sibling[]> {
    this.did.push(["siblings", turn]);
    return this.siblingList;
  }

  #ask(verb: string, said: unknown, { idempotencyKey: name }: { idempotencyKey: string }): MadeUpStream {
    const stream = new MadeUpStream();
    this.asked.push({ verb, said, name, stream });
    return stream;
  }
}

/** Somebody with one chat. */
export class MadeUpSession {
  readonly chat = new MadeUpChat();
  readonly storage = new StorageScope("own", new MemoryStorage());
  readonly outbox = new Outbox(this.storage.backend, this.storage.sender);
  readonly notices = new Notices();
  readonly connection = signal<ConnectionState>("live");
  readonly shown: Signal<Thread | null> = signal(null);
  readonly ending = new AbortController();
  readonly told: unknown[] = [];
  readonly resent: { readonly unsent: UnsentMessage; readonly stream: MadeUpStream }[] = [];
  isReader = false;
  mayRun = true;
  made: string[] = [];
  #listeners = new Set<(change: Change) => void>();

  readonly feed = {
    connection: this.connection,
    listen: (listener: (change: Change) => void) => {
      this.#listeners.add(listener);
      return () => this.#listeners.delete(listener);
    },
  };
  readonly chats = { put: () => {} };
  /** Whose composer was wanted, so that it takes back what failed. */
  readonly composed: unknown[] = [];
  readonly composers = { modelOf: () => "scripted", of: (thread: unknown) => this.composed.push(thread) };
  readonly client = {
    chats: {
      open: () => this.chat,
      create: async ({ idempotencyKey }: { idempotencyKey: string }) => {
        this.made.push(idempotencyKey);
        return { id: "conv_1" };
      },
      stop: async (key: string) => void this.chat.did.push(["stop by key", key]),
    },
    jobs: ({ chat }: { chat: string }) => ({
      all: async () => {
        this.chat.did.push(["jobs", chat]);
        return this.chat.jobs;
      },
    }),
    resend: (unsent: UnsentMessage) => {
      const stream = new MadeUpStream();
      this.resent.push({ unsent, stream });
      return stream;
    },
  };
  readonly threads = {
    current: this.shown,
    newChat: signal({}),
    outbox: new TabOutbox(this.storage, this.outbox, this.ending.signal),
    tabMessages: { of: () => undefined, requestAll: () => {}, post: (message: unknown) => this.told.push(message) },
    chatCreated: () => {},
  };

  get session(): Session {
    return this as unknown as Session;
  }

  /** Something happened to the chat, or to a turn `beside` the branch that is shown; another one that runs has no
   * branch. */
  happens(type: Change["type"], turn?: string, beside?: string): void {
    const branch = beside ?? (type === "turn.running" ? undefined : this.chat.branch);
    const change = { type, chat: "conv_1", turn, position: "1", at: 1, branch };
    for (const listener of this.#listeners) listener(change as unknown as Change);
  }
}

/** Let everything happen that can without time. */
export async function rest(): Promise<void> {
  for (let time = 0; time < 60; time += 1) await Promise.resolve();
}
