/** One chat that a server keeps, as it is shown: its history, what is on its way, and what failed. */

import { batch, computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { errors, freshKey, type Change, type Chat, type ChatInfo, type ChatPage } from "turnledger";
import type { Input, Item, NewChat, OnStop, Stream, Turn, TurnEvent, TurnOptions, TurnStream, Unsent } from "turnledger";
import type { Session } from "../session/session";
import { Branching } from "./sibling-turns";
import { failed, Failures, failureOf } from "./failures";
import { Following, type Outcome } from "./turn-reader";
import { History } from "./history";
import { itemsOf } from "./items";
import { MadeChat } from "./lazy-chat";
import { OnItsWay } from "./pending-turns";
import { Running } from "./pending-turn";
import { Sending, type Message } from "./turn-sender";
import { settled } from "../browser/wait-for";
import type { ExportFormat, Failed, SendOptions, ShownThread, Siblings } from "./thread";
import type { Telling } from "./tab-messages";
import type { Written } from "./outbox";
import { isVisible } from "../browser/visibility";

/** Milliseconds before what has ended is looked for again in the history, where nobody was there to tell. */
const PAUSE = 2_000;
const NONE: ReadonlySignal<null> = signal(null);

/** Ask for a turn in a chat. */
function asked(chat: Chat, said: Written["said"], options: TurnOptions & { stream: true }): TurnStream {
  const { verb, turn = "", input } = said;
  if (verb === "send") return chat.send(input, options);
  return verb === "edit" ? chat.edit(turn, input, options) : chat.regenerate(turn, options);
}

export class Thread implements ShownThread {
  readonly isKept = true;
  readonly #session: Session;
  readonly #problem = signal<unknown>(null);
  readonly #isLoaded = signal(false);
  readonly #ending = new AbortController();
  readonly #made: MadeChat;
  readonly #history: History;
  readonly #way = new OnItsWay();
  readonly #failures: Failures;
  readonly #following: Following;
  readonly #sending: Sending;
  readonly #branching: Branching;
  readonly #leave: () => void;
  /** Under which name a turn was shown while it ran. */
  readonly #names = new Map<string, string>();
  /** Turns of which nobody knows who asked for them, while something from here is on its way to the server. */
  readonly #unclear = new Set<string>();
  /** What was asked for elsewhere, and how to leave it. */
  readonly #strangers = new Map<Running, AbortController>();
  /** How what failed last is asked for again. */
  #again: { readonly name: string; ask(name: string): Promise<void> } | null = null;

  /** `id`: null for a chat that is not made yet. `chatName`, `facts`: under which it is made, and as what, if a tab has
   * begun to do so. */
  constructor(session: Session, id: string | null, chatName?: string, facts?: NewChat) {
    this.#session = session;
    this.#isLoaded.value = id === null;
    const { signal: ending } = this.#ending;
    const made = (known: string): void => {
      session.threads.unsent.made(this.#made.name, known);
      session.threads.named(this, known);
      void this.load();
    };
    const wanted = facts ?? session.threads?.newChat.peek() ?? {};
    this.#made = new MadeChat(session.client, id, wanted, made, ending, chatName);
    const isShown = computed(() => isVisible.value && session.threads.current.value === this);
    this.#history = new History((options) => this.#made.chat.read(options), ending, !session.isReader);
    this.#failures = new Failures(session.realm);
    this.#following = new Following(isShown, (running) => this.#way.before(running), ending);
    this.#branching = new Branching(() => this.#made.chat, ending);
    this.#sending = new Sending({
      chat: this.#made,
      way: this.#way,
      following: this.#following,
      unsent: session.threads.unsent,
      read: (turn, after) => this.#events(turn, after),
      taken: (running) => this.#taken(running),
      ended: (running, outcome) => this.#end(running, outcome),
    });
    const unlisten = session.live.listen((change) => this.#follow(change));
    const release = effect(() => {
      // Nobody was there when it was to be read: somebody is now.
      if (session.live.connection.value === "live" && this.#problem.peek() !== null) void this.load();
    });
    this.#leave = () => [unlisten, release].forEach((each) => each());
    if (id !== null) void this.load();
  }

  get id(): ReadonlySignal<string | null> {
    return this.#made.id;
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
    return this.id.value === null ? null : this.#made.chat;
  }

  nameOf(turn: Turn): string {
    return this.#names.get(turn.id) ?? turn.id;
  }

  /** Read what it shows by now, and find what runs there. */
  async load(from?: number): Promise<void> {
    try {
      const page = await this.#history.catchUp(from);
      await this.#session.threads.unsent.ready;
      this.#found(page);
      if (!this.#isLoaded.peek()) this.#session.threads.tellings.ask(this.id.peek() as string);
      this.#problem.value = null;
      this.#isLoaded.value = true;
    } catch (problem) {
      // What is shown stays: it is true, if not all of it.
      const isGone = problem instanceof errors.ConversationUnavailable;
      if (!this.#ending.signal.aborted && (isGone || !this.#isLoaded.peek())) this.#problem.value = problem;
    }
  }

  async older(): Promise<void> {
    await this.#history.older().catch((problem: unknown) => this.#told(problem));
  }

  // What is asked for.

  send(input: Input, options: SendOptions = {}): Promise<void> {
    return this.#write({ verb: "send", input }, options);
  }

  edit(turn: Turn, input: Input, options: SendOptions = {}): Promise<void> {
    return this.#write({ verb: "edit", turn: turn.id, input }, options);
  }

  regenerate(turn: Turn, options: SendOptions = {}): Promise<void> {
    return this.#write({ verb: "regenerate", turn: turn.id, input: turn.input as Input }, options);
  }

  /** A message that a tab has left behind. */
  async resend(unsent: Unsent, isOld: boolean): Promise<void> {
    const body = JSON.parse(unsent.body) as { input?: Input; replaces?: string; regenerates?: string };
    const [name, input] = [unsent.idempotencyKey, itemsOf(body.input ?? [])];
    if (isOld) return this.#tooOld(name, input);
    const replaces = body.replaces ?? (typeof body.regenerates === "string" ? body.regenerates : null);
    await this.#asking(name, async (again) => {
      const headers = { ...unsent.headers, "idempotency-key": encodeURIComponent(again) };
      const named = again === name ? unsent : { ...unsent, idempotencyKey: again, headers };
      const { signal } = this.#ending;
      const ask: Message["ask"] = (beforeRetry) => this.#session.client.resend(named, { signal, beforeRetry });
      await this.#sending.send({ name: again, input, replaces, wasAsked: again === name, ask });
    });
  }

  /** A message that a tab has left behind before it asked for its turn. */
  async ask(written: Written, isOld = false): Promise<void> {
    const { name, said, options } = written;
    const input = itemsOf(said.input);
    if (isOld) return this.#tooOld(name, input);
    const goesFirst = options.onBusy === "interrupt" || options.onBusy === "rollback";
    let isWritten = true;
    await this.#asking(name, async (again) => {
      const chat = { ...written.chat, id: this.id.peek() };
      if (!isWritten) this.#session.threads.unsent.write({ ...written, name: again, chat });
      isWritten = false; // asked for once more, it is written down once more
      const named = { ...(options as TurnOptions), idempotencyKey: again, signal: this.#ending.signal };
      const stream: Message["ask"] = (beforeRetry) =>
        asked(this.#made.chat, said, { ...named, stream: true, beforeRetry });
      await this.#sending.send({ name: again, input, replaces: said.turn ?? null, goesFirst, ask: stream });
    });
  }

  async stop({ which, policy }: { which?: Running; policy?: OnStop } = {}): Promise<void> {
    const running = which ?? this.#way.first;
    const before = running?.state.peek();
    if (!running || before === undefined || before === "ending") return;
    const isAway = running.isCut.peek() || this.#session.live.connection.peek() === "lost" || !navigator.onLine;
    const isTaken = (running.turnId.peek() ?? running.guess.peek()) !== null;
    const isHereOnly = !running.isAsked.peek() || (isAway && !isTaken);
    if (isHereOnly && this.#sending.withdraw(running)) return; // no server has it, as far as is known
    running.state.value = "stopping";
    try {
      const guess = (): string | null => (running.isDoubtful ? null : running.guess.value);
      const known = (): string | null => running.turnId.value ?? guess();
      await settled(() => known() !== null || !this.#way.all.value.includes(running));
      const turn = known();
      if (turn !== null) await this.#made.chat.stop({ turn, ...(policy && { policy }) });
    } catch (problem) {
      if (running.state.peek() === "stopping") running.state.value = before;
      this.#told(problem);
    }
  }

  async retry(options?: SendOptions): Promise<void> {
    const last = this.#failures.last.peek();
    if (!last) return;
    const again = this.#again?.name === last.name ? this.#again : null;
    this.#failures.clear();
    // Under the same name, it goes on behind the last step that was done. What was stopped is over by that name.
    if (again && !options) return this.#asking(last.isStopped ? freshKey() : last.name, again.ask);
    // Whoever asks again for the same failure elsewhere at this moment asks for the same.
    const name = last.attempt && !options ? { idempotencyKey: `again ${last.attempt}` } : {};
    await this.send(last.input as Input, { ...options, ...name });
  }

  forgetFailure(): void {
    this.#failures.dismiss();
  }

  // Branches.

  siblings(turn: Turn): ReadonlySignal<Siblings | null> {
    return this.#session.isReader ? NONE : this.#branching.of(turn);
  }

  async switch(branch: string, from?: number): Promise<void> {
    await this.#move((chat) => chat.switch(branch, { idempotencyKey: freshKey(), onBusy: "reject" }), from);
  }

  async undo(): Promise<void> {
    const last = this.turns.peek().at(-1);
    const options = { idempotencyKey: freshKey(), onBusy: "reject" } as const;
    if (last) await this.#move((chat) => chat.undo({ turn: last.id, ...options }));
  }

  async fork(at: Turn): Promise<string | null> {
    try {
      return (await this.#made.chat.fork({ at: at.id, idempotencyKey: freshKey() })).id;
    } catch (problem) {
      this.#told(problem);
      return null;
    }
  }

  async export(format: ExportFormat): Promise<Blob | null> {
    try {
      const lines: string[] = [];
      const { signal: ending } = this.#ending;
      for await (const line of this.#made.chat.export({ format, signal: ending })) lines.push(`${line}\n`);
      return new Blob(lines, { type: format === "markdown" ? "text/markdown" : "application/x-ndjson" });
    } catch (problem) {
      this.#told(problem);
      return null;
    }
  }

  // Other tabs.

  /** What was asked for here and has not ended. */
  tellings(): readonly Telling[] {
    return this.#way.all.peek().flatMap((each) => this.#telling(each));
  }

  /** Another tab tells what it asked for in this chat. */
  hear({ turn, input }: Telling): void {
    const running = this.#way.of(turn);
    if (running && running.input.peek().length === 0) running.input.value = input;
  }

  close(): void {
    this.#leave();
    this.#ending.abort();
  }

  // Inside.

  /** Ask for it under this name; if it fails, it can be asked for in the same way again. */
  async #asking(name: string, ask: (name: string) => Promise<void>): Promise<void> {
    this.#failures.clear();
    await ask(name);
    if (this.#failures.last.peek()?.name === name) this.#again = { name, ask };
  }

  /** Write it down, so that it is not lost with this tab, and ask for it. */
  #write(said: Written["said"], options: SendOptions): Promise<void> {
    const { idempotencyKey: name = freshKey(), ...rest } = options;
    const model = rest.model ?? this.#session.composing.modelOf(this) ?? undefined;
    const given = Object.entries({ ...rest, model }).filter(([, value]) => value !== undefined);
    const { name: chatName, facts } = this.#made;
    const chat = { id: this.id.peek(), name: chatName, facts };
    const { unsent } = this.#session.threads;
    const written = unsent.write({ name, chat, said, options: Object.fromEntries(given) });
    return unsent.behind(name, () => this.ask(written));
  }

  /** A server has a message from here. */
  #taken(running: Running): void {
    const guess = running.guess.peek();
    if (guess !== null && guess !== running.turnId.peek()) this.#unclear.add(guess);
    for (const other of this.#way.all.peek()) {
      if (other.turnId.peek() === running.turnId.peek()) this.#strangers.get(other)?.abort();
    }
    for (const telling of this.#telling(running)) this.#session.threads.tellings.tell(telling);
    this.#session.threads.unsent.erase(running.name);
    queueMicrotask(() => this.#clarify());
  }

  /** What has ended takes its place in the history, or is told to have failed. */
  async #end(running: Running, outcome: Outcome): Promise<void> {
    if (this.#ending.signal.aborted) return;
    const { name, replaces, isHere } = running;
    const attempt = running.turnId.peek();
    if (isHere) this.#session.outbox.forget(name);
    if (isHere) this.#session.threads.unsent.erase(name);
    if (attempt !== null) this.#names.set(attempt, name);
    if (outcome.kind === "failed") {
      const asked = { name, replaces, isHere, input: running.input.peek(), attempt };
      batch(() => {
        this.#failures.put(failureOf(asked, outcome.problem), this.#turnsByNow());
        this.#way.leave(running);
      });
      if (attempt !== null) void this.load(); // what its tools did may be in the history
    } else {
      running.state.value = "ending";
      if (this.id.peek() !== null) await this.#caughtUp();
      this.#way.leave(running);
    }
    this.#clarify();
  }

  /** Read the history, as soon as that is possible. */
  async #caughtUp(): Promise<void> {
    while (!this.#ending.signal.aborted) {
      try {
        return this.#found(await this.#history.catchUp());
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
    this.#branching.keep(this.turns.peek());
    for (const { id, state, input, createdAt } of page.attempts) {
      if (state !== "running") continue;
      const running = this.#way.of(id);
      if (running && running.input.peek().length === 0) running.input.value = input;
      if (running || this.#history.has(id) || this.#way.isGuessed(id)) continue;
      if (this.#way.unknown) this.#unclear.add(id);
      else this.#stranger(id, { input, state: "running", startedAt: createdAt });
    }
    if (this.#way.all.peek().length === 0) this.#failures.find(page.turns, page.attempts);
  }

  /** Follow a turn that somebody else asked for. */
  #stranger(turn: string, known: Partial<ConstructorParameters<typeof Running>[0]>): void {
    const { input = [], replaces = null } = this.#session.threads.tellings.of(turn) ?? {};
    const running = new Running({ name: turn, isHere: false, turnId: turn, input, replaces, ...known });
    this.#way.add(running);
    if (known.state === "running") {
      this.#failures.clear();
      this.#way.begun(running);
    }
    const leaving = new AbortController();
    this.#strangers.set(running, leaving);
    leaving.signal.addEventListener("abort", () => this.#way.leave(running));
    const source = { read: (id: string, after: number) => this.#events(id, after) };
    void this.#following
      .follow(running, source, leaving.signal)
      .then((outcome) => (leaving.signal.aborted ? undefined : this.#end(running, outcome)))
      .finally(() => {
        this.#strangers.delete(running);
        this.#way.leave(running);
      });
  }

  /** What was unclear is known, as soon as nothing from here is on its way to the server. */
  #clarify(): void {
    if (this.#way.unknown || this.#unclear.size === 0) return;
    const strangers = [...this.#unclear].filter((turn) => !this.#way.of(turn) && !this.#history.has(turn));
    this.#unclear.clear();
    if (strangers.length > 0) void this.load();
  }

  #follow(change: Change): void {
    if (change.type === "gap") {
      for (const each of this.#way.all.peek()) each.isOver.value = each.turnId.peek() !== null;
      void this.#branching.look();
      if (this.id.peek() !== null) void this.load();
      return;
    }
    if (!("chat" in change) || change.chat !== this.id.peek()) return;
    switch (change.type) {
      case "turn.queued":
      case "turn.running":
        return this.#goesOn(change.turn, change.type);
      case "turn.committed":
      case "turn.failed":
      case "turn.stopped":
      case "turn.withdrawn":
        return this.#hasEnded(change.turn, change.type);
      case "chat.switched":
        void this.#branching.look();
        void this.load();
        return;
      case "chat.changed":
      case "chat.restored":
      case "chat.deleted":
        void this.load();
        return;
    }
  }

  #goesOn(turn: string, type: "turn.queued" | "turn.running"): void {
    const running = this.#way.of(turn);
    if (running) {
      if (type === "turn.queued") return;
      if (running.state.peek() === "queued") running.state.value = "running";
      this.#way.begun(running);
      if (running.input.peek().length === 0) void this.load();
      return;
    }
    if (this.#history.has(turn) || this.#way.isGuessed(turn) || this.#session.isReader) return;
    const own = this.#way.unknown;
    if (type === "turn.queued") this.#way.doubt();
    if (!own && type === "turn.queued") this.#stranger(turn, { state: "queued" });
    else if (!own) void this.load();
    else if (type === "turn.running") this.#unclear.add(turn);
    else {
      // One that was asked for elsewhere in this very moment is told apart as soon as the server has answered here.
      own.guess.value = turn;
      if (own.state.peek() === "sending") own.state.value = "queued";
    }
  }

  #hasEnded(turn: string, type: Change["type"]): void {
    this.#unclear.delete(turn);
    const running = this.#way.of(turn);
    if (running) running.isOver.value = true;
    else if (type === "turn.withdrawn" || (type === "turn.committed" && this.#history.has(turn))) return;
    else void this.load();
  }

  async #move(move: (chat: Chat) => Promise<ChatInfo>, from?: number): Promise<void> {
    try {
      await move(this.#made.chat);
      void this.#branching.look();
      this.#failures.clear();
      await this.load(from);
    } catch (problem) {
      this.#told(problem);
    }
  }

  #events(turn: string, after: number): Stream<TurnEvent> {
    return this.#made.chat.events(turn, { after, signal: this.#ending.signal });
  }

  #telling({ turnId, isHere, name, input, replaces }: Running): Telling[] {
    const [chat, turn] = [this.id.peek(), turnId.peek()];
    return isHere && chat !== null && turn !== null ? [{ chat, turn, name, input: input.peek(), replaces }] : [];
  }

  /** It is told, and written again where it was written: nobody may look at this chat for long. */
  async #tooOld(name: string, input: readonly Item[]): Promise<void> {
    await settled(() => this.#isLoaded.value || this.#problem.value !== null); // else it came before all turns
    if (this.#ending.signal.aborted) return;
    const asked = { name, input, replaces: null, isHere: true, attempt: null };
    this.#session.composing.of(this);
    this.#failures.put(failed(asked, "outcome_unknown", ""), this.#turnsByNow());
    this.#session.outbox.forget(name);
    this.#session.threads.unsent.erase(name);
  }

  /** The last turn, and those on their way. */
  #turnsByNow(): readonly (string | null)[] {
    return [this.turns.peek().at(-1)?.id ?? null, ...this.#way.all.peek().map(({ turnId }) => turnId.peek())];
  }

  #told(problem: unknown): void {
    if (!this.#ending.signal.aborted) this.#session.notices.problem(problem);
  }
}
