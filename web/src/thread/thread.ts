/** One chat that a server keeps, as it is shown. */

import { batch, computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type Chat, type ChatInfo, type ChatPage, type Input, type Item, type OnStop } from "turnledger";
import type { Turn, TurnOptions, TurnStream, Unsent } from "turnledger";
import type { Session } from "../session/session";
import { Branching } from "./branching";
import { failed, failedWith, Failures } from "./failures";
import { Following, type Outcome, type Source } from "./following";
import { History } from "./history";
import { freshName } from "./names";
import { OnItsWay } from "./on-its-way";
import { Running } from "./running";
import type { ExportFormat, Failed, SendOptions, ShownThread, Siblings } from "./shown-thread";
import type { Telling } from "./tellings";
import type { FirstMessage } from "./unsent";
import { isVisible } from "./visible";

/** Milliseconds before what has ended is looked for again in the history, where nobody was there to tell. */
const PAUSE = 2_000;

type Asking = (chat: Chat, options: TurnOptions & { stream: true }) => TurnStream;

/** What is known of a request before it is made. */
interface Request {
  readonly input: readonly Item[];
  readonly replaces: string | null;
  readonly name: string;
  /** Whether it goes before those that wait. */
  readonly goesFirst: boolean;
  readonly ask: () => TurnStream;
}

export class Thread implements ShownThread {
  readonly isKept = true;
  readonly #session: Session;
  readonly #id = signal<string | null>(null);
  readonly #problem = signal<unknown>(null);
  readonly #isLoaded = signal(false);
  readonly #ending = new AbortController();
  readonly #history: History;
  readonly #way = new OnItsWay();
  readonly #failures: Failures;
  readonly #following: Following;
  readonly #branching: Branching;
  readonly #unlisten: () => void;
  /** Under which name a turn was shown while it ran. */
  readonly #names = new Map<string, string>();
  /** What is on its way from here, and can be taken back as long as no server has it. */
  readonly #withdrawals = new Map<Running, AbortController>();
  /** Turns that somebody asked for: here, if one from here is on its way to the server. */
  readonly #unclear = new Set<string>();
  #made: Promise<Chat> | null = null;
  readonly #chatName = freshName();
  /** Resolves when a server has the last message that was sent from here: the next one goes behind it. */
  #taken: Promise<void> = Promise.resolve();
  #again: ((name?: string) => Promise<void>) | null = null;

  /** `id`: null for a chat that is not made yet. */
  constructor(session: Session, id: string | null) {
    this.#session = session;
    this.#id.value = id;
    this.#isLoaded.value = id === null;
    const { signal: ending } = this.#ending;
    const isShown = computed(() => isVisible.value && session.threads.current.value === this);
    this.#history = new History((options) => this.#known().read(options), ending, !session.isReader);
    this.#failures = new Failures(session.realm);
    this.#following = new Following(isShown, (running) => this.#way.before(running), ending);
    this.#branching = new Branching(() => this.#known(), ending);
    this.#unlisten = session.live.listen((change) => this.#follow(change));
    if (id !== null) void this.load();
  }

  get id(): ReadonlySignal<string | null> {
    return this.#id;
  }
  get info(): ReadonlySignal<ChatInfo | null> {
    return this.#history.info;
  }
  get turns(): ReadonlySignal<readonly Turn[]> {
    return this.#history.turns;
  }
  get hasOlder(): ReadonlySignal<boolean> {
    return this.#history.hasOlder;
  }
  get running(): ReadonlySignal<readonly Running[]> {
    return this.#way.all;
  }
  get failed(): ReadonlySignal<Failed | null> {
    return this.#failures.last;
  }
  get problem(): ReadonlySignal<unknown> {
    return this.#problem;
  }
  get isLoaded(): ReadonlySignal<boolean> {
    return this.#isLoaded;
  }
  /** Whether something that was asked for here is on its way. */
  get isBusy(): boolean {
    return this.#way.all.peek().some((each) => each.isHere);
  }

  /** The chat itself, for what is not about its thread. */
  get chat(): Chat | null {
    return this.#id.value === null ? null : this.#known();
  }

  nameOf(turn: Turn): string {
    return this.#names.get(turn.id) ?? turn.id;
  }

  /** Read what it shows by now, and find what runs there. */
  async load(): Promise<void> {
    try {
      this.#found(await this.#history.catchUp());
      if (!this.#isLoaded.peek()) this.#session.threads.tellings.ask(this.#id.peek() as string);
      this.#problem.value = null;
      this.#isLoaded.value = true;
    } catch (problem) {
      // What is shown stays: it is true, if not all of it.
      if (!this.#ending.signal.aborted && !this.#isLoaded.peek()) this.#problem.value = problem;
    }
  }

  async older(): Promise<void> {
    try {
      await this.#history.older();
    } catch (problem) {
      this.#told(problem);
    }
  }

  // What is asked for.

  send(input: Input, options: SendOptions = {}): Promise<void> {
    return this.#ask(itemsOf(input), null, options, (chat, more) => chat.send(input, more), input);
  }

  edit(turn: Turn, input: Input, options: SendOptions = {}): Promise<void> {
    return this.#ask(itemsOf(input), turn.id, options, (chat, more) => chat.edit(turn.id, input, more));
  }

  regenerate(turn: Turn, options: SendOptions = {}): Promise<void> {
    return this.#ask(turn.input, turn.id, options, (chat, more) => chat.regenerate(turn.id, more));
  }

  /** A message that a tab has left behind. */
  resend(unsent: Unsent, isOld: boolean): Promise<void> {
    const { input, replaces = null } = JSON.parse(unsent.body) as { input?: Input; replaces?: string };
    const name = unsent.idempotencyKey;
    if (isOld) return Promise.resolve(this.#tooOld(name, itemsOf(input ?? [])));
    const ask = (): TurnStream => this.#session.client.resend(unsent, { signal: this.#ending.signal });
    const request = { input: itemsOf(input ?? []), replaces, name, goesFirst: false, ask };
    return this.#carry(request, () => this.#carry(request, null));
  }

  /** A first message that a tab has left behind, for this chat, which was made for it. */
  resendFirst({ name, input, options }: FirstMessage, isOld: boolean): Promise<void> {
    if (isOld) return Promise.resolve(this.#tooOld(name, itemsOf(input as Input)));
    return this.send(input as Input, { ...(options as SendOptions), idempotencyKey: name });
  }

  async stop({ which, policy }: { which?: Running; policy?: OnStop } = {}): Promise<void> {
    const running = which ?? this.#way.first;
    if (!running || running.state.peek() === "ending") return;
    const isAway = running.isCut.peek() || this.#session.live.connection.peek() === "lost" || !navigator.onLine;
    if (running.turnId.peek() === null && isAway) {
      this.#withdrawals.get(running)?.abort(); // nobody has it, as far as is known
      return;
    }
    const before = running.state.peek();
    running.state.value = "stopping";
    try {
      await settled(() => running.turnId.value !== null || !this.#way.all.value.includes(running));
      const turn = running.turnId.peek();
      if (turn !== null) await this.#known().stop({ turn, ...(policy && { policy }) });
    } catch (problem) {
      if (running.state.peek() === "stopping") running.state.value = before;
      this.#told(problem);
    }
  }

  async retry(options?: SendOptions): Promise<void> {
    const last = this.#failures.last.peek();
    const again = this.#again;
    if (!last) return;
    this.#failures.clear();
    // Under the same name, it goes on behind the last step that was done. What was stopped is over by that name.
    if (again && last.isHere) await again(options || last.isStopped ? freshName() : last.name);
    else await this.send(last.input as Input, options);
  }

  forgetFailure(): void {
    this.#failures.dismiss();
  }

  // Branches.

  siblings(turn: Turn): ReadonlySignal<Siblings | null> {
    return this.#session.isReader ? NONE : this.#branching.of(turn);
  }

  async switch(branch: string): Promise<void> {
    await this.#move((chat) => chat.switch(branch));
  }

  async undo(): Promise<void> {
    const last = this.#history.turns.peek().at(-1);
    if (last) await this.#move((chat) => chat.undo({ turn: last.id, idempotencyKey: freshName() }));
  }

  async fork(at: Turn): Promise<string | null> {
    try {
      return (await this.#known().fork({ at: at.id, idempotencyKey: freshName() })).id;
    } catch (problem) {
      this.#told(problem);
      return null;
    }
  }

  async export(format: ExportFormat): Promise<Blob | null> {
    try {
      const lines: string[] = [];
      for await (const line of this.#known().export({ format, signal: this.#ending.signal })) lines.push(`${line}\n`);
      return new Blob(lines, { type: format === "markdown" ? "text/markdown" : "application/x-ndjson" });
    } catch (problem) {
      this.#told(problem);
      return null;
    }
  }

  /** What was asked for here and has not ended, for the other tabs. */
  tellings(): readonly Telling[] {
    return this.#way.all.peek().flatMap((each) => this.#telling(each));
  }

  /** Another tab tells what it asked for in this chat. */
  hear({ turn, input }: Telling): void {
    const running = this.#way.of(turn);
    if (running && running.input.peek().length === 0) running.input.value = input;
  }

  close(): void {
    this.#unlisten();
    this.#ending.abort();
  }

  // Inside.

  #ask(
    input: readonly Item[],
    replaces: string | null,
    options: SendOptions,
    asking: Asking,
    first?: Input,
  ): Promise<void> {
    const { idempotencyKey = freshName(), onBusy } = options;
    const model = options.model ?? this.#session.model.peek() ?? undefined;
    const said = defined({ ...options, model, idempotencyKey: undefined });
    if (this.#id.peek() === null && first !== undefined) {
      this.#session.threads.unsent.write({ name: idempotencyKey, chatName: this.#chatName, chat: {}, input: first, options: said });
    }
    const request = (name: string): Request => ({
      input,
      replaces,
      name,
      goesFirst: onBusy === "interrupt" || onBusy === "rollback",
      ask: () => asking(this.#known(), { ...said, idempotencyKey: name, stream: true, signal: this.#ending.signal }),
    });
    const again = (name = freshName()): Promise<void> => this.#carry(request(name), again);
    return again(idempotencyKey);
  }

  /** Bring a message to its end. */
  async #carry(request: Request, again: ((name?: string) => Promise<void>) | null): Promise<void> {
    const { input, replaces, name } = request;
    if (this.#way.all.peek().some((each) => each.name === name)) return;
    this.#failures.clear();
    const running = new Running({ name, isHere: true, input, replaces });
    const withdrawal = new AbortController();
    this.#withdrawals.set(running, withdrawal);
    this.#way.add(running, request.goesFirst);
    const before = this.#taken;
    this.#taken = settled(() => running.turnId.value !== null || !this.#way.all.value.includes(running));
    const untell = this.#telling_(running);
    try {
      await this.#session.threads.unsent.holding(name, async () => {
        await before;
        if (!withdrawal.signal.aborted) await this.#make(withdrawal.signal);
        const source: Source = { ask: request.ask, read: (turn, after) => this.#events(turn, after) };
        const outcome = await this.#following.follow(running, source, withdrawal.signal);
        await this.#end(running, withdrawal.signal.aborted ? WITHDRAWN : outcome);
      });
    } catch (problem) {
      await this.#end(running, withdrawal.signal.aborted ? WITHDRAWN : { kind: "failed", problem });
    } finally {
      untell();
      this.#withdrawals.delete(running);
      this.#way.leave(running);
      if (this.#failures.last.peek()?.name === name) this.#again = again;
      this.#clarify();
    }
  }

  /** What has ended takes its place in the history, or is told to have failed. */
  async #end(running: Running, outcome: Outcome): Promise<void> {
    if (this.#ending.signal.aborted) return;
    const turn = running.turnId.peek();
    this.#session.threads.unsent.erase(running.name);
    if (running.isHere) this.#session.outbox.forget(running.name);
    if (turn !== null) this.#names.set(turn, running.name);
    if (outcome.kind === "failed") {
      const { name, replaces, isHere } = running;
      const asked = { name, replaces, isHere, input: running.input.peek(), attempt: turn };
      batch(() => {
        this.#failures.put(failureOf(asked, outcome.problem));
        this.#way.leave(running);
      });
      if (turn !== null) void this.load(); // what its tools did may be in the history
      return;
    }
    running.state.value = "ending";
    await this.#caughtUp();
    this.#way.leave(running);
  }

  /** Read the history until that was possible. */
  async #caughtUp(): Promise<void> {
    while (!this.#ending.signal.aborted) {
      try {
        this.#found(await this.#history.catchUp());
        return;
      } catch (problem) {
        const isLost = problem instanceof errors.TurnledgerError && problem.isRetryable;
        if (!isLost) return this.#told(problem);
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    }
  }

  /** Take in what was read besides the turns. */
  #found(page: ChatPage): void {
    this.#session.chats.put(page.chat);
    this.#branching.keep(page.turns.length ? this.#history.turns.peek() : []);
    for (const { id, state, input, createdAt } of page.attempts) {
      if (state !== "running") continue;
      const running = this.#way.of(id);
      if (running && running.input.peek().length === 0) running.input.value = input;
      if (running || this.#history.has(id)) continue;
      if (this.#way.isAnyUnknown) this.#unclear.add(id);
      else this.#stranger(new Running({ ...this.#of(id), input, state: "running", startedAt: createdAt }));
    }
    if (this.#way.all.peek().length === 0) this.#failures.find(page.turns, page.attempts);
  }

  /** What is known of a turn that somebody else asked for. */
  #of(turn: string): ConstructorParameters<typeof Running>[0] {
    const told = this.#session.threads.tellings.of(turn);
    return { name: turn, isHere: false, turnId: turn, input: told?.input ?? [], replaces: told?.replaces ?? null };
  }

  /** Follow a turn that somebody else asked for. */
  #stranger(running: Running): void {
    const source: Source = { read: (turn, after) => this.#events(turn, after) };
    if (running.state.peek() === "running") this.#failures.clear();
    this.#way.add(running);
    if (running.state.peek() === "running") this.#way.begun(running);
    void this.#following.follow(running, source).then(async (outcome) => {
      await this.#end(running, outcome);
      this.#way.leave(running);
    });
  }

  /** What has been unclear is known, as soon as nothing from here is on its way to the server. */
  #clarify(): void {
    if (this.#way.isAnyUnknown || this.#unclear.size === 0) return;
    const strangers = [...this.#unclear].filter((turn) => !this.#way.of(turn) && !this.#history.has(turn));
    this.#unclear.clear();
    if (strangers.length > 0) void this.load();
  }

  #follow(change: Change): void {
    if (change.type === "gap") {
      for (const each of this.#way.all.peek()) each.isOver.value = true;
      void this.#branching.look();
      if (this.#id.peek() !== null) void this.load();
      return;
    }
    if (!("chat" in change) || change.chat !== this.#id.peek()) return;
    switch (change.type) {
      case "turn.queued":
      case "turn.running":
        this.#goesOn(change.turn, change.type);
        break;
      case "turn.committed":
      case "turn.failed":
      case "turn.stopped":
      case "turn.withdrawn":
        this.#hasEnded(change.turn, change.type);
        break;
      case "chat.switched":
        void this.#branching.look();
        if (change.branch !== this.info.peek()?.branch) void this.load();
        break;
      case "chat.changed":
      case "chat.restored":
        void this.load();
        break;
      case "chat.deleted":
        if (!this.isBusy) this.#problem.value = new errors.ConversationDeleted("conversation_deleted", "This chat was deleted.");
        break;
    }
  }

  #goesOn(turn: string, type: "turn.queued" | "turn.running"): void {
    const running = this.#way.of(turn);
    if (running) {
      if (type === "turn.queued") return;
      if (running.state.peek() === "queued") running.state.value = "running";
      this.#way.begun(running);
      if (running.input.peek().length === 0) void this.load();
    } else if (this.#history.has(turn) || this.#session.isReader) return;
    else if (this.#way.isAnyUnknown) this.#unclear.add(turn);
    else if (type === "turn.queued") this.#stranger(new Running({ ...this.#of(turn), state: "queued" }));
    else void this.load();
  }

  #hasEnded(turn: string, type: Change["type"]): void {
    this.#unclear.delete(turn);
    const running = this.#way.of(turn);
    if (running) running.isOver.value = true;
    else if (type === "turn.withdrawn" || (type === "turn.committed" && this.#history.has(turn))) return;
    else void this.load();
  }

  async #move(move: (chat: Chat) => Promise<ChatInfo>): Promise<void> {
    try {
      await move(this.#known());
      void this.#branching.look();
      this.#failures.clear();
      await this.load();
    } catch (problem) {
      this.#told(problem);
    }
  }

  /** The chat, made once however many first messages wait for it. */
  async #make(withdrawn: AbortSignal): Promise<void> {
    while (this.#id.peek() === null) {
      this.#made ??= this.#session.client.chats
        .create({ idempotencyKey: this.#chatName, signal: this.#ending.signal })
        .finally(() => (this.#made = null));
      try {
        const { id } = await this.#made;
        if (this.#id.peek() !== null) return;
        this.#id.value = id;
        this.#session.threads.named(this, id as string);
        void this.load();
      } catch (problem) {
        const isLost = problem instanceof errors.TurnledgerError && problem.isRetryable;
        if (!isLost || withdrawn.aborted || this.#ending.signal.aborted) throw problem;
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    }
  }

  #known(): Chat {
    return this.#session.client.chats.open(this.#id.peek() as string);
  }

  #events(turn: string, after: number): ReturnType<Chat["events"]> {
    return this.#known().events(turn, { after, signal: this.#ending.signal });
  }

  /** Tell the other tabs which turn it is, as soon as that is known; until what it returns is called. */
  #telling_(running: Running): () => void {
    return effect(() => {
      if (running.turnId.value === null) return;
      for (const telling of this.#telling(running)) this.#session.threads.tellings.tell(telling);
      this.#session.threads.unsent.erase(running.name);
      queueMicrotask(() => this.#clarify());
    });
  }

  #telling({ turnId, isHere, name, input, replaces }: Running): Telling[] {
    const [chat, turn] = [this.#id.peek(), turnId.peek()];
    return isHere && chat !== null && turn !== null ? [{ chat, turn, name, input: input.peek(), replaces }] : [];
  }

  #tooOld(name: string, input: readonly Item[]): void {
    this.#session.outbox.forget(name);
    this.#session.threads.unsent.erase(name);
    this.#failures.put(failed({ name, input, replaces: null, isHere: false, attempt: null }, "outcome_unknown", ""));
  }

  #told(problem: unknown): void {
    if (!this.#ending.signal.aborted) this.#session.notices.problem(problem);
  }
}

const NONE: ReadonlySignal<null> = signal(null);
const WITHDRAWN: Outcome = { kind: "failed", problem: { code: "turn_stopped", message: "It was taken back." } };

function failureOf(asked: Parameters<typeof failed>[0], problem: unknown): Failed {
  if (problem instanceof Error) return failedWith(asked, problem);
  const { code, message } = problem as { code: string; message: string };
  return failed(asked, code, message);
}

/** What is new as items, as it will be in the history. */
function itemsOf(input: Input): readonly Item[] {
  const items = typeof input === "string" ? [input] : input;
  return items.map((item) =>
    typeof item === "string"
      ? { type: "message", role: "user", content: [{ type: "input_text", text: item }] }
      : ({ type: "message", ...item } as Item),
  );
}

/** Resolves as soon as it is so. */
async function settled(condition: () => boolean): Promise<void> {
  await new Promise<void>((resolve) => {
    const release = effect(() => {
      if (condition()) queueMicrotask(() => (release(), resolve()));
    });
  });
}

/** The same without what is undefined. */
function defined<Fields extends object>(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Fields;
}
