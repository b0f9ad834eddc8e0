/** A chat that the server keeps: its history, its pending turns, and the last failure. */

import { batch, computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { errors, freshKey, type Change, type Chat, type ChatInfo, type ChatPage, type Input } from "turnledger";
import type {
  Item,
  Job,
  NewChat,
  OnStop,
  Stream,
  Turn,
  TurnEvent,
  TurnOptions,
  TurnStream,
  UnsentMessage,
} from "turnledger";
import { updateChat } from "../chats/revision-conflicts";
import type { Session } from "../session/session";
import { settingsOf, settingsOnly, turnOptionsOf, withSettings, type ChatSettings } from "../chats/chat-settings";
import { SiblingTurns } from "./sibling-turns";
import { failedTurn, Failures, failedTurnOf } from "./failures";
import { TurnReader, type TurnOutcome } from "./turn-reader";
import { History } from "./history";
import { itemsOf } from "./items";
import { LazyChat } from "./lazy-chat";
import { BackgroundTurns } from "./background-turns";
import { countBefore, PendingTurns } from "./pending-turns";
import { PendingTurn } from "./pending-turn";
import { TurnSender, type OutgoingMessage } from "./turn-sender";
import { waitFor } from "../browser/wait-for";
import type { ExportFormat, FailedTurn, SendOptions, Thread, Siblings } from "./thread";
import type { TabMessage } from "./tab-messages";
import type { WrittenMessage } from "./outbox";
import { isTabVisible } from "../browser/visibility";

/** Milliseconds before an ended turn is looked for again in the history, if the server was unavailable. */
const RETRY_PAUSE = 2_000;
const NONE: ReadonlySignal<null> = signal(null);
/** Where the settings of a chat that does not exist yet are stored. */
const NEW_SETTINGS = "new chat settings";

function sendRequest(chat: Chat, said: WrittenMessage["said"], options: TurnOptions & { stream: true }): TurnStream {
  const { verb, turn = "", input } = said;
  if (verb === "send") return chat.send(input, options);
  return verb === "edit" ? chat.edit(turn, input, options) : chat.regenerate(turn, options);
}

export class KeptThread implements Thread {
  readonly isKept = true;
  readonly #session: Session;
  readonly #problem = signal<unknown>(null);
  readonly #isLoaded = signal(false);
  readonly #ending = new AbortController();
  readonly #chat: LazyChat;
  readonly #history: History;
  readonly #pending = new PendingTurns();
  readonly #failures: Failures;
  readonly settings: ReadonlySignal<ChatSettings>;
  /** The settings of a chat that does not exist yet. */
  readonly #newSettings: Signal<ChatInfo["metadata"]>;
  readonly #reader: TurnReader;
  readonly #sender: TurnSender;
  readonly #siblings: SiblingTurns;
  readonly #leave: () => void;
  /** The name of a turn while it was pending. */
  readonly #names = new Map<string, string>();
  /** Turns of unknown origin, and their last change, while a message from here has no turn id yet. */
  readonly #unknownTurns = new Map<string, "turn.queued" | "turn.running">();
  readonly #background: BackgroundTurns;
  /** The branch of the last switch: a read may not have shown it yet. */
  #switchedTo: string | null = null;
  /** Whether a message waits for the chat to be created. */
  #isBegun: boolean;
  /** Turns sent elsewhere, and how to stop following them. */
  readonly #others = new Map<PendingTurn, AbortController>();
  /** Turns that a later message from here rolled back. */
  readonly #rolledBack = new WeakSet<PendingTurn>();
  /** How to retry the last failure. */
  #again: { readonly name: string; send(name: string): Promise<void> } | null = null;

  /** `id`: null for a chat that does not exist yet. `chatName`, `facts`: its key and options, if another tab has begun
   * to create it. */
  constructor(session: Session, id: string | null, chatName?: string, facts?: NewChat) {
    this.#session = session;
    this.#isLoaded.value = id === null;
    const { signal: ending } = this.#ending;
    const onCreated = (known: string): void => {
      session.threads.outbox.chatCreated(this.#chat.name, known);
      session.threads.chatCreated(this, known);
      void this.load();
    };
    const newChat = facts ?? session.threads?.newChat.peek() ?? {};
    this.#chat = new LazyChat(session.client, id, newChat, onCreated, ending, chatName);
    const isShown = computed(() => isTabVisible.value && session.threads.current.value === this);
    this.#isBegun = id !== null || facts !== undefined;
    this.#newSettings = signal(facts?.metadata ?? (this.#isBegun ? {} : storedSettings(session)));
    this.settings = computed(() => settingsOf(this.info.value?.metadata ?? this.#newSettings.value));
    this.#history = new History((options) => this.#chat.chat.read(options), ending, session.isReader);
    this.#failures = new Failures(session.storage);
    const before = (pending: PendingTurn): number => countBefore(this.#pending.all.value, pending);
    this.#reader = new TurnReader(isShown, before, ending);
    const readJobs = (): Promise<Job[]> =>
      session.client.jobs({ chat: this.id.peek() as string, signal: ending }).all();
    this.#background = new BackgroundTurns(readJobs, (jobs) => this.#applyJobs(jobs));
    this.#siblings = new SiblingTurns(() => this.#chat.chat, ending);
    this.#sender = new TurnSender({
      chat: this.#chat,
      pending: this.#pending,
      reader: this.#reader,
      outbox: session.threads.outbox,
      read: (turn, after) => this.#events(turn, after),
      onAccepted: (pending) => this.#onAccepted(pending),
      onEnded: (pending, outcome) => this.#onEnded(pending, outcome),
    });
    const unlisten = session.feed.listen((change) => this.#follow(change));
    const release = effect(() => {
      // The server was unavailable, and is back.
      if (session.feed.connection.value === "live" && this.#problem.peek() !== null) void this.load();
    });
    this.#leave = () => [unlisten, release].forEach((each) => each());
    if (id !== null) void this.load();
  }

  get id(): ReadonlySignal<string | null> {
    return this.#chat.id;
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
  get hasNewer(): ReadonlySignal<boolean> {
    return this.#history.hasNewer;
  }
  get pending(): ReadonlySignal<readonly PendingTurn[]> {
    return this.#pending.all;
  }
  get failed(): ReadonlySignal<FailedTurn | null> {
    return this.#failures.last;
  }
  get problem(): ReadonlySignal<unknown> {
    return this.#problem;
  }
  get isLoaded(): ReadonlySignal<boolean> {
    return this.#isLoaded;
  }

  nameOf(turn: Turn): string {
    return this.#names.get(turn.id) ?? turn.id;
  }

  /** Read the current turns, and find running ones. */
  async load(from?: number): Promise<void> {
    try {
      const page = await this.#history.catchUp(from);
      await this.#session.threads.outbox.ready;
      this.#applyPage(page);
      if (!this.#isLoaded.peek() && !this.#session.isReader) void this.#background.refresh();
      if (!this.#isLoaded.peek()) this.#session.threads.tabMessages.requestAll(this.id.peek() as string);
      this.#problem.value = null;
      this.#isLoaded.value = true;
    } catch (problem) {
      // Keep the shown turns: they are correct, if incomplete.
      const isGone = problem instanceof errors.ConversationUnavailable;
      if (!this.#ending.signal.aborted && (isGone || !this.#isLoaded.peek())) this.#problem.value = problem;
    }
  }

  async older(): Promise<void> {
    await this.#history.older().catch((problem: unknown) => this.#report(problem));
  }

  async newer(): Promise<void> {
    await this.#history.newer().catch((problem: unknown) => this.#report(problem));
  }

  async latest(): Promise<void> {
    await this.#history.latest().catch((problem: unknown) => this.#report(problem));
  }

  send(input: Input, options: SendOptions = {}): Promise<void> {
    return this.#write({ verb: "send", input }, options);
  }

  edit(turn: Turn, input: Input, options: SendOptions = {}): Promise<void> {
    return this.#write({ verb: "edit", turn: turn.id, input }, options);
  }

  regenerate(turn: Turn, options: SendOptions = {}): Promise<void> {
    return this.#write({ verb: "regenerate", turn: turn.id, input: turn.input as Input }, options);
  }

  /** Send a message again that a closed tab had sent. */
  async resend(unsent: UnsentMessage, isOld: boolean): Promise<void> {
    const body = JSON.parse(unsent.body) as { input?: Input; replaces?: string; regenerates?: string };
    const [name, input] = [unsent.idempotencyKey, itemsOf(body.input ?? [])];
    if (isOld) return this.#reportTooOld(name, input);
    const replaces = body.replaces ?? (typeof body.regenerates === "string" ? body.regenerates : null);
    await this.#sendAs(name, async (again) => {
      const headers = { ...unsent.headers, "idempotency-key": encodeURIComponent(again) };
      const named = again === name ? unsent : { ...unsent, idempotencyKey: again, headers };
      const { signal } = this.#ending;
      const request: OutgoingMessage["request"] = (beforeRetry) =>
        this.#session.client.resend(named, { signal, beforeRetry });
      await this.#sender.send({ name: again, input, replaces, wasSent: again === name, request });
    });
  }

  /** Send a message that a closed tab had stored and not sent. */
  async sendStored(written: WrittenMessage, isOld = false): Promise<void> {
    const { name, said, options } = written;
    const input = itemsOf(said.input);
    if (isOld) return this.#reportTooOld(name, input);
    const skipsQueue = options.onBusy === "interrupt" || options.onBusy === "rollback";
    const running = this.#pending.all.peek().find(({ state }) => state.peek() === "running");
    if (options.onBusy === "rollback" && running) this.#rolledBack.add(running);
    let isWritten = true;
    await this.#sendAs(name, async (again) => {
      const chat = { ...written.chat, id: this.id.peek() };
      if (!isWritten) this.#session.threads.outbox.write({ ...written, name: again, chat });
      isWritten = false; // a retry stores it again
      const named = { ...(options as TurnOptions), idempotencyKey: again, signal: this.#ending.signal };
      const request: OutgoingMessage["request"] = (beforeRetry) =>
        sendRequest(this.#chat.chat, said, { ...named, stream: true, beforeRetry });
      await this.#sender.send({ name: again, input, replaces: said.turn ?? null, skipsQueue, request });
    });
  }

  async stop({ which, policy }: { which?: PendingTurn; policy?: OnStop } = {}): Promise<void> {
    const pending = which ?? this.#pending.first;
    const before = pending?.state.peek();
    if (!pending || before === undefined || before === "ending") return;
    const isLost = this.#session.feed.connection.peek() === "lost";
    const isOffline = pending.isOffline.peek() || isLost || !navigator.onLine;
    const isUnsent = !pending.isSent.peek() || (isOffline && pending.turnId.peek() === null);
    if (isUnsent && this.#sender.withdraw(pending)) {
      // No server is known to have it. If one does, and only its answer was lost, it ends there, too.
      const { chats } = this.#session.client;
      if (pending.isSent.peek()) await chats.stop(pending.name, { policy: "discard" }).catch(() => {});
      return;
    }
    pending.state.value = "stopping";
    try {
      await waitFor(() => pending.turnId.value !== null || !this.#pending.all.value.includes(pending));
      const turn = pending.turnId.peek();
      if (turn !== null) await this.#chat.chat.stop({ turn, ...(policy && { policy }) });
    } catch (problem) {
      if (pending.state.peek() === "stopping") pending.state.value = before;
      this.#report(problem);
    }
  }

  async retry(options?: SendOptions): Promise<void> {
    const last = this.#failures.last.peek();
    if (!last) return;
    const again = this.#again?.name === last.name ? this.#again : null;
    this.#failures.clear();
    // Under the same key the turn resumes after its last finished step. A stopped turn needs a new key.
    if (again && !options) return this.#sendAs(last.isStopped ? freshKey() : last.name, again.send);
    // Retries of the same failure in several tabs share one key.
    const name = last.attempt && !options ? { idempotencyKey: `again ${last.attempt}` } : {};
    const input = last.input as Input;
    const message = last.replaces === null ? { verb: "send" as const } : { verb: "edit" as const, turn: last.replaces };
    await this.#write({ ...message, input }, { ...options, ...name });
  }

  forgetFailure(): void {
    this.#failures.dismiss();
  }

  siblings(turn: Turn): ReadonlySignal<Siblings | null> {
    return this.#session.isReader ? NONE : this.#siblings.of(turn);
  }

  async switch(branch: string, from?: number): Promise<void> {
    await this.#move((chat) => chat.switch(branch, { idempotencyKey: freshKey(), onBusy: "reject" }), from);
  }

  async undo(): Promise<void> {
    const last = this.turns.peek().at(-1);
    const options = { idempotencyKey: freshKey(), onBusy: "reject" } as const;
    if (last) await this.#move((chat) => chat.undo({ turn: last.id, ...options }));
  }

  async showToModel(turn: Turn, isShown: boolean, place?: number): Promise<void> {
    const items = place === undefined ? {} : { items: [place] };
    try {
      this.#history.takeFlags(await this.#chat.chat.flag(turn.id, { ...items, toModel: isShown }));
    } catch (problem) {
      this.#report(problem);
    }
  }

  async fork(at: Turn): Promise<string | null> {
    try {
      const { title, metadata = {} } = this.info.peek() ?? {};
      const kept = settingsOnly(metadata);
      const details = { ...(title && { title }), ...(Object.keys(kept).length > 0 && { metadata: kept }) };
      return (await this.#chat.chat.fork({ at: at.id, ...details, idempotencyKey: freshKey() })).id;
    } catch (problem) {
      this.#report(problem);
      return null;
    }
  }

  async export(format: ExportFormat): Promise<Blob | null> {
    try {
      const lines: string[] = [];
      const { signal: ending } = this.#ending;
      for await (const line of this.#chat.chat.export({ format, signal: ending })) lines.push(`${line}\n`);
      return new Blob(lines, { type: format === "markdown" ? "text/markdown" : "application/x-ndjson" });
    } catch (problem) {
      this.#report(problem);
      return null;
    }
  }

  async changeSettings(settings: ChatSettings): Promise<void> {
    if (!this.#isBegun) {
      const metadata = withSettings({}, settings);
      this.#newSettings.value = metadata;
      this.#session.storage.set(NEW_SETTINGS, JSON.stringify(metadata));
      return;
    }
    await this.#chat.create();
    const { chat } = this.#chat;
    const known = this.info.peek() ?? (await chat.info());
    const changed = await updateChat<"metadata">(chat, known, ({ metadata }) => ({
      metadata: withSettings(metadata, settings),
    }));
    this.#session.chats.put(changed);
    await this.load();
  }

  /** The pending turns that were sent from here. */
  tabMessages(): readonly TabMessage[] {
    return this.#pending.all.peek().flatMap((each) => this.#tabMessage(each));
  }

  receive({ turn, input }: TabMessage): void {
    const pending = this.#pending.of(turn);
    if (pending && pending.input.peek().length === 0) pending.input.value = input;
  }

  close(): void {
    this.#leave();
    this.#ending.abort();
  }

  /** Send under this name; after a failure it can be retried the same way. */
  async #sendAs(name: string, send: (name: string) => Promise<void>): Promise<void> {
    this.#failures.clear();
    await send(name);
    if (this.#failures.last.peek()?.name === name) this.#again = { name, send };
  }

  /** Store the message, so that it survives this tab, and send it. */
  #write(said: WrittenMessage["said"], options: SendOptions): Promise<void> {
    const { idempotencyKey: name = freshKey(), ...rest } = options;
    const model = rest.model ?? this.#session.composers.modelOf(this) ?? undefined;
    const all = { ...turnOptionsOf(this.settings.peek()), ...rest, model };
    const given = Object.entries(all).filter(([, value]) => value !== undefined);
    this.#begin();
    const { name: chatName, facts } = this.#chat;
    const chat = { id: this.id.peek(), name: chatName, facts };
    const { outbox } = this.#session.threads;
    const written = outbox.write({ name, chat, said, options: Object.fromEntries(given) });
    return outbox.sendInOrder(name, () => this.sendStored(written));
  }

  /** Settle the options of a new chat: its first message is about to be stored with them. */
  #begin(): void {
    if (this.#isBegun) return;
    this.#isBegun = true;
    const metadata = this.#newSettings.peek();
    if (Object.keys(metadata).length === 0) return;
    this.#chat.facts = { ...this.#chat.facts, metadata };
    this.#session.storage.set(NEW_SETTINGS, null);
  }

  /** A server has accepted a message from here. */
  #onAccepted(pending: PendingTurn): void {
    for (const other of this.#pending.all.peek()) {
      if (other.turnId.peek() === pending.turnId.peek()) this.#others.get(other)?.abort();
    }
    for (const message of this.#tabMessage(pending)) this.#session.threads.tabMessages.post(message);
    this.#session.threads.outbox.erase(pending.name);
    queueMicrotask(() => this.#resolveUnknown());
  }

  /** Move an ended turn to the history, or show that it failed. */
  async #onEnded(pending: PendingTurn, outcome: TurnOutcome): Promise<void> {
    if (this.#ending.signal.aborted) return;
    const { name, isLocal } = pending;
    const attempt = pending.turnId.peek();
    if (isLocal) this.#session.outbox.forget(name);
    if (isLocal) this.#session.threads.outbox.erase(name);
    if (attempt !== null) this.#names.set(attempt, name);
    if (outcome.kind === "failed") {
      const [input, replaces] = [pending.input.peek(), pending.replaces.peek()];
      const request = { name, replaces, isLocal, input, attempt, hasBegun: pending.hasBegun };
      const failed = failedTurnOf(request, outcome.problem);
      const isReplaced = failed.isStopped && this.#rolledBack.has(pending);
      batch(() => {
        // Any later turn makes a stop obsolete, also one that was pending by then.
        if (!isReplaced) this.#failures.put(failed, failed.isStopped ? [this.#head()] : this.#latestTurns());
        this.#pending.remove(pending);
      });
      if (attempt !== null) void this.load(); // its tool results may be in the history
    } else {
      pending.state.value = "ending";
      if (this.id.peek() !== null) await this.#catchUp();
      this.#pending.remove(pending);
    }
    this.#resolveUnknown();
  }

  /** Read the history as soon as the server is available. */
  async #catchUp(): Promise<void> {
    while (!this.#ending.signal.aborted) {
      try {
        return this.#applyPage(await this.#history.catchUp());
      } catch (problem) {
        const isLost = problem instanceof errors.TurnledgerError && problem.isRetryable;
        if (!isLost) return this.#report(problem);
        await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE));
      }
    }
  }

  /** Handle the rest of a page: the chat and its attempts. */
  #applyPage(page: ChatPage): void {
    this.#session.chats.put(page.chat);
    this.#siblings.keep(this.turns.peek());
    if (this.hasNewer.peek()) return; // it belongs after turns that are not shown
    for (const { id, state, input, replaces, createdAt } of page.attempts) {
      if (state !== "running") continue;
      const pending = this.#pending.of(id);
      if (pending && pending.input.peek().length === 0) {
        pending.input.value = input;
        pending.replaces.value = replaces;
      }
      if (pending || this.#history.has(id)) continue;
      if (this.#pending.hasUnidentified) this.#unknownTurns.set(id, "turn.running");
      else this.#followOther(id, { input, replaces, state: "running", startedAt: createdAt });
    }
    const isAtRest = this.#pending.all.peek().every(({ state }) => state.peek() === "ending");
    if (isAtRest) this.#failures.find(page.turns, page.attempts);
  }

  /** Show the background turns that wait. */
  #applyJobs(jobs: readonly Job[]): void {
    for (const { id, state, input, before } of jobs) {
      if (state !== "queued") continue; // a running one is among the attempts of the chat
      if (!this.#pending.of(id) && !this.#history.has(id)) this.#showProgress(id, "turn.queued");
      const pending = this.#pending.of(id);
      if (!pending) continue;
      pending.ahead.value = before;
      if (pending.input.peek().length === 0) pending.input.value = input;
    }
  }

  /** Follow a turn that was sent elsewhere. */
  #followOther(turn: string, known: Partial<ConstructorParameters<typeof PendingTurn>[0]>): void {
    const { input = [], replaces = null } = this.#session.threads.tabMessages.of(turn) ?? {};
    const pending = new PendingTurn({ name: turn, isLocal: false, turnId: turn, input, replaces, ...known });
    this.#pending.add(pending);
    if (known.state === "running") {
      this.#failures.clear();
      this.#pending.moveStarted(pending);
    }
    const leaving = new AbortController();
    this.#others.set(pending, leaving);
    leaving.signal.addEventListener("abort", () => this.#pending.remove(pending));
    const source = { read: (id: string, after: number) => this.#events(id, after) };
    void this.#reader
      .follow(pending, source, leaving.signal)
      .then((outcome) => (leaving.signal.aborted ? undefined : this.#onEnded(pending, outcome)))
      .finally(() => {
        this.#others.delete(pending);
        this.#pending.remove(pending);
      });
  }

  /** Resolve turns of unknown origin, as soon as every message from here has its turn id. */
  #resolveUnknown(): void {
    if (this.#pending.hasUnidentified || this.#unknownTurns.size === 0) return;
    const others = [...this.#unknownTurns];
    this.#unknownTurns.clear();
    for (const [turn, type] of others) {
      if (!this.#pending.of(turn) && !this.#history.has(turn)) this.#showProgress(turn, type);
    }
    this.#refreshQueue();
  }

  /** Read again which background turns wait, and for how many, if any do. */
  #refreshQueue(): void {
    if (this.#pending.hasOthersQueued || this.#background.isReading) void this.#background.refresh();
  }

  #follow(change: Change): void {
    if (change.type === "turn.flagged") return this.#turnFlagged(change.turn);
    if (change.type === "gap") {
      for (const each of this.#pending.all.peek()) each.isOver.value = each.turnId.peek() !== null;
      if (this.id.peek() === null) return;
      void this.#loadWithSiblings();
      if (!this.#session.isReader) void this.#background.refresh();
      return;
    }
    if (!("chat" in change) || change.chat !== this.id.peek()) return;
    switch (change.type) {
      case "turn.running":
        if (change.branch !== undefined) return; // it runs beside the branch that is shown
        this.#turnProgressed(change.turn, change.type);
        break;
      case "turn.queued":
        this.#turnProgressed(change.turn, change.type);
        break;
      case "turn.committed":
        if (!this.#pending.of(change.turn) && this.#isBeside(change.branch)) return;
        this.#turnEnded(change.turn, change.type);
        break;
      case "turn.failed":
      case "turn.stopped":
      case "turn.withdrawn":
        this.#turnEnded(change.turn, change.type);
        break;
      case "chat.switched":
        this.#switchedTo = change.branch;
        void this.#loadWithSiblings();
        break;
      case "chat.changed":
      case "chat.restored":
      case "chat.deleted":
        void this.load();
        break;
    }
    this.#refreshQueue();
  }

  #turnProgressed(turn: string, type: "turn.queued" | "turn.running"): void {
    const pending = this.#pending.of(turn);
    if (pending) {
      if (type === "turn.queued") return;
      if (pending.state.peek() === "queued") pending.state.value = "running";
      this.#pending.moveStarted(pending);
      if (pending.input.peek().length === 0) void this.load();
      return;
    }
    if (!this.#history.has(turn) && !this.#session.isReader) this.#showProgress(turn, type);
  }

  /** Show a turn that is not known here; but later, if it may be that of a message from here. */
  #showProgress(turn: string, type: "turn.queued" | "turn.running"): void {
    if (this.#pending.hasUnidentified) this.#unknownTurns.set(turn, type);
    else if (type === "turn.queued") this.#followOther(turn, { state: "queued" });
    else void this.load();
  }

  /** Whether a turn was committed on a branch that is not shown, and that no read is about to show. */
  #isBeside(branch: string): boolean {
    const shown = this.info.peek()?.branch;
    return shown !== undefined && branch !== shown && branch !== this.#switchedTo;
  }

  /** Items of a turn were hidden or shown. A visitor is not told which turn it was. */
  #turnFlagged(turn: string | undefined): void {
    if (turn === undefined) void this.load(this.turns.peek()[0]?.number);
    else this.#history.refresh(turn).catch(() => {}); // as after a failed load, the turn stays as it was
  }

  #turnEnded(turn: string, type: Change["type"]): void {
    this.#unknownTurns.delete(turn);
    const pending = this.#pending.of(turn);
    if (pending) pending.isOver.value = true;
    else if (type === "turn.withdrawn" || (type === "turn.committed" && this.#history.has(turn))) return;
    else void this.load();
  }

  async #move(move: (chat: Chat) => Promise<ChatInfo>, from?: number): Promise<void> {
    try {
      await move(this.#chat.chat);
      this.#failures.clear();
      await this.#loadWithSiblings(from);
    } catch (problem) {
      this.#report(problem);
    }
  }

  /** Read the turns, then their siblings: of a turn that is no longer shown, there are none to ask for. */
  async #loadWithSiblings(from?: number): Promise<void> {
    await this.load(from);
    void this.#siblings.refresh();
  }

  #events(turn: string, after: number): Stream<TurnEvent> {
    return this.#chat.chat.events(turn, { after, signal: this.#ending.signal });
  }

  #tabMessage({ turnId, isLocal, name, input, replaces }: PendingTurn): TabMessage[] {
    const [chat, turn] = [this.id.peek(), turnId.peek()];
    if (!isLocal || chat === null || turn === null) return [];
    return [{ chat, turn, name, input: input.peek(), replaces: replaces.peek() }];
  }

  /** Report a message that is too old to send, and put its text back into the composer. */
  async #reportTooOld(name: string, input: readonly Item[]): Promise<void> {
    await waitFor(() => this.#isLoaded.value || this.#problem.value !== null); // otherwise it would precede all turns
    if (this.#ending.signal.aborted) return;
    const request = { name, input, replaces: null, isLocal: true, attempt: null };
    this.#session.composers.of(this);
    this.#failures.put(failedTurn(request, "outcome_unknown", ""), this.#latestTurns());
    this.#session.outbox.forget(name);
    this.#session.threads.outbox.erase(name);
  }

  #head(): string | null {
    return this.turns.peek().at(-1)?.id ?? null;
  }

  /** The last turn, and the pending ones. */
  #latestTurns(): readonly (string | null)[] {
    return [this.#head(), ...this.#pending.all.peek().map(({ turnId }) => turnId.peek())];
  }

  #report(problem: unknown): void {
    if (!this.#ending.signal.aborted) this.#session.notices.problem(problem);
  }
}

/** The settings that were chosen for a new chat before a reload. */
function storedSettings({ storage }: Session): ChatInfo["metadata"] {
  try {
    return settingsOnly((JSON.parse(storage.get(NEW_SETTINGS) ?? "{}") ?? {}) as ChatInfo["metadata"]);
  } catch {
    return {};
  }
}
