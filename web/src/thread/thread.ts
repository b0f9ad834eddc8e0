/** One chat as it is shown: the end of its history, what is on its way, and what failed last. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Attempt, type Change, type Chat, type ChatInfo, type OnBusy, type Turn, type TurnStream } from "turnledger";
import { wordsOfProblem } from "../session/notices";
import type { Session } from "../session/session";
import { Running } from "./running";

/** How many turns are read at once. */
const PAGE = 30;

/** A turn that never happened: why, and what was said, so that it can be said again. */
export interface Failed {
  readonly text: string;
  readonly code: string;
  readonly message: string;
}

export interface SendOptions {
  readonly model?: string | undefined;
  readonly onBusy?: OnBusy;
  readonly idempotencyKey?: string;
}

export class Thread {
  readonly #session: Session;
  readonly #id = signal<string | null>(null);
  readonly #info = signal<ChatInfo | null>(null);
  readonly #turns = signal<readonly Turn[]>([]);
  readonly #before = signal<number | null>(null);
  readonly #running = signal<readonly Running[]>([]);
  readonly #failed = signal<Failed | null>(null);
  readonly #problem = signal<unknown>(null);
  readonly #isLoaded = signal(false);
  readonly #ending = new AbortController();
  readonly #streams = new Map<Running, TurnStream>();
  readonly #unlisten: () => void;
  #made: Promise<Chat> | null = null;

  /** `id`: null for a chat that is not made yet. */
  constructor(session: Session, id: string | null) {
    this.#session = session;
    this.#id.value = id;
    this.#isLoaded.value = id === null;
    this.#unlisten = session.live.listen((change) => this.#follow(change));
    if (id !== null) void this.load();
  }

  get id(): ReadonlySignal<string | null> {
    return this.#id;
  }
  /** Null until it is known. */
  get info(): ReadonlySignal<ChatInfo | null> {
    return this.#info;
  }
  /** The last turns, the oldest of them first. */
  get turns(): ReadonlySignal<readonly Turn[]> {
    return this.#turns;
  }
  /** Whether there are older ones. */
  readonly hasOlder: ReadonlySignal<boolean> = computed(() => this.#before.value !== null);
  get running(): ReadonlySignal<readonly Running[]> {
    return this.#running;
  }
  get failed(): ReadonlySignal<Failed | null> {
    return this.#failed;
  }
  /** Why it cannot be shown. */
  get problem(): ReadonlySignal<unknown> {
    return this.#problem;
  }
  get isLoaded(): ReadonlySignal<boolean> {
    return this.#isLoaded;
  }
  /** Whether something that was asked for here is on its way. */
  get isBusy(): boolean {
    return this.#running.peek().some((each) => each.isHere);
  }

  /** The chat itself, for what is not about its thread. */
  get chat(): Chat | null {
    return this.#id.value === null ? null : this.#session.client.chats.open(this.#id.value);
  }

  /** Read the end of the history anew. */
  async load(): Promise<void> {
    try {
      const page = await this.#known().read({ limit: PAGE, signal: this.#ending.signal });
      this.#info.value = page.chat;
      this.#turns.value = page.turns;
      this.#before.value = page.before;
      this.#problem.value = null;
      this.#isLoaded.value = true;
      for (const attempt of page.attempts) if (attempt.state === "running") this.#follows(attempt);
    } catch (problem) {
      if (!this.#ending.signal.aborted) this.#problem.value = problem;
    }
  }

  /** Read some more turns, from before those that are there. */
  async older(): Promise<void> {
    const before = this.#before.value;
    if (before === null) return;
    const page = await this.#known().read({ before, limit: PAGE, signal: this.#ending.signal });
    if (this.#before.value !== before) return;
    this.#turns.value = [...page.turns, ...this.#turns.value];
    this.#before.value = page.before;
  }

  /** Ask for a turn. Resolves when it has ended, however it did: what became of it is shown. */
  async send(text: string, options: SendOptions = {}): Promise<void> {
    this.#failed.value = null;
    const name = options.idempotencyKey ?? crypto.randomUUID();
    const input = [{ type: "message", role: "user", content: [{ type: "input_text", text }] }];
    const running = new Running({ name, isHere: true, input });
    this.#running.value = [...this.#running.value, running];
    try {
      const chat = await this.#make();
      const model = options.model ?? this.#session.model.value ?? undefined;
      const { onBusy } = options;
      const stream = chat.send(text, {
        stream: true,
        idempotencyKey: name,
        signal: this.#ending.signal,
        ...(model !== undefined && { model }),
        ...(onBusy !== undefined && { onBusy }),
      });
      this.#streams.set(running, stream);
      for await (const event of stream) {
        running.turnId.value = stream.turnId;
        running.hear(event);
      }
      const answer = await stream.answer();
      this.#put(answer.turn, answer.chat);
    } catch (problem) {
      if (this.#ending.signal.aborted) return;
      const code = problem instanceof errors.TurnledgerError ? problem.code : "unknown";
      this.#failed.value = { text, code, message: wordsOfProblem(problem) };
    } finally {
      this.#streams.delete(running);
      this.#leave(running);
    }
  }

  /** Stop what runs. */
  async stop(): Promise<void> {
    const running = this.#running.value.find((each) => each.state.value !== "ending");
    if (!running) return;
    running.state.value = "stopping";
    try {
      const stream = this.#streams.get(running);
      if (stream) await stream.stop();
      else if (running.turnId.value !== null) await this.#known().stop({ turn: running.turnId.value });
    } catch (problem) {
      this.#session.notices.problem(problem);
    }
  }

  close(): void {
    this.#unlisten();
    this.#ending.abort();
  }

  /** The chat, made once however many first messages wait for it. */
  #make(): Promise<Chat> {
    if (this.#id.value !== null) return Promise.resolve(this.#known());
    this.#made ??= this.#session.client.chats
      .create({ idempotencyKey: crypto.randomUUID(), signal: this.#ending.signal })
      .then((chat) => {
        this.#id.value = chat.id;
        this.#session.threads.named(this, chat.id as string);
        return chat;
      })
      .catch((problem: unknown) => {
        this.#made = null;
        throw problem;
      });
    return this.#made;
  }

  #known(): Chat {
    return this.#session.client.chats.open(this.#id.value as string);
  }

  /** Follow a turn that somebody else asked for. */
  #follows({ id, input }: Pick<Attempt, "id" | "input">): void {
    if (this.#running.value.some((each) => each.turnId.value === id)) return;
    const running = new Running({ name: id, isHere: false, input, turnId: id, state: "running" });
    this.#running.value = [...this.#running.value, running];
    void this.#read(running, id);
  }

  async #read(running: Running, id: string): Promise<void> {
    try {
      for await (const event of this.#known().events(id, { signal: this.#ending.signal })) running.hear(event);
      await this.load();
    } catch (problem) {
      if (!this.#ending.signal.aborted) this.#session.notices.problem(problem);
    } finally {
      this.#leave(running);
    }
  }

  #put(turn: Turn, chat: ChatInfo): void {
    this.#info.value = chat;
    this.#session.chats.put(chat);
    const kept = this.#turns.value.filter((each) => each.number < turn.number);
    this.#turns.value = [...kept, turn];
  }

  #leave(running: Running): void {
    this.#running.value = this.#running.value.filter((each) => each !== running);
  }

  #follow(change: Change): void {
    if (change.type === "gap") void this.load();
    if (!("chat" in change) || change.chat !== this.#id.value) return;
    if (change.type === "turn.running" || change.type === "turn.committed" || change.type === "chat.switched") {
      const isOurs = "turn" in change && this.#running.value.some((each) => each.turnId.value === change.turn);
      if (!isOurs) void this.load();
    }
  }
}
