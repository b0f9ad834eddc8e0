/** A chat that is not kept: it lives in the memory of this page until the user leaves it. */

import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";
import { freshKey, type ChatInfo, type Input, type Item, type OnStop, type Turn } from "turnledger";
import { UnkeptChat, type UnkeptEvent, type UnkeptMessage } from "turnledger/unkept";
import type { Session } from "../session/session";
import { settingsOf, turnOptionsOf, type ChatSettings } from "../chats/chat-settings";
import { failedTurnOf } from "./failures";
import { answerItem, itemsOf, messagesOf, thoughtItem } from "./items";
import { PendingTurn } from "./pending-turn";
import type { FailedTurn, SendOptions, Thread, Siblings } from "./thread";

/** A turn, and its messages for the next request. */
interface UnkeptTurn {
  readonly turn: Turn;
  readonly messages: readonly UnkeptMessage[];
}

type Stream = ReturnType<UnkeptChat["send"]>;

export class UnkeptThread implements Thread {
  readonly id: ReadonlySignal<string | null> = signal(null);
  readonly info: ReadonlySignal<ChatInfo | null> = signal(null);
  readonly isKept = false;
  readonly hasOlder: ReadonlySignal<boolean> = signal(false);
  readonly hasNewer: ReadonlySignal<boolean> = signal(false);
  readonly problem: ReadonlySignal<unknown> = signal(null);
  readonly isLoaded: ReadonlySignal<boolean> = signal(true);
  readonly turns: ReadonlySignal<readonly Turn[]>;
  readonly #settings = signal<ChatSettings>(settingsOf({}));
  readonly #history = signal<readonly UnkeptTurn[]>([]);
  readonly #pending = signal<readonly PendingTurn[]>([]);
  readonly #failed = signal<FailedTurn | null>(null);
  readonly #session: Session;
  readonly #closing = new AbortController();
  /** Aborts with the conversation so far. */
  #ending = new AbortController();
  readonly #streams = new Map<PendingTurn, Stream>();
  /** What happens to stopped turns. */
  readonly #stopped = new Map<PendingTurn, OnStop>();
  /** Turns that a later message rolled back. */
  readonly #rolledBack = new WeakSet<PendingTurn>();
  readonly #names = new Map<string, string>();
  /** Settles with the last sent message. */
  #last: Promise<void> = Promise.resolve();

  constructor(session: Session) {
    this.#session = session;
    this.turns = computed(() => this.#history.value.map(({ turn }) => turn));
    // The back/forward cache would keep the page for the next user.
    addEventListener("pagehide", () => this.#forget(), { signal: this.#closing.signal });
  }

  get pending(): ReadonlySignal<readonly PendingTurn[]> {
    return this.#pending;
  }

  get failed(): ReadonlySignal<FailedTurn | null> {
    return this.#failed;
  }

  get settings(): ReadonlySignal<ChatSettings> {
    return this.#settings;
  }

  async changeSettings(settings: ChatSettings): Promise<void> {
    this.#settings.value = settings;
  }

  nameOf({ id }: Turn): string {
    return this.#names.get(id) ?? id;
  }

  send(input: Input, options?: SendOptions): Promise<void> {
    return this.#submit(itemsOf(input), null, options);
  }

  edit(turn: Turn, input: Input, options?: SendOptions): Promise<void> {
    return this.#submit(itemsOf(input), turn.id, options);
  }

  regenerate(turn: Turn, options?: SendOptions): Promise<void> {
    return this.#submit(turn.input, turn.id, options);
  }

  async retry(options?: SendOptions): Promise<void> {
    const failed = this.#failed.peek();
    if (failed) await this.#submit(failed.input, failed.replaces, options);
  }

  async stop({ which, policy = "keep" }: { which?: PendingTurn; policy?: OnStop } = {}): Promise<void> {
    const pending = which ?? this.#pending.peek()[0];
    if (!pending) return;
    this.#stopped.set(pending, policy);
    pending.state.value = "stopping";
    const stream = this.#streams.get(pending);
    if (stream) stream.close();
    else this.#end(pending, null); // it was queued, and not sent
  }

  forgetFailure(): void {
    this.#failed.value = null;
  }

  close(): void {
    this.#closing.abort();
    this.#forget();
  }

  // Not available without a server that keeps it.
  async older(): Promise<void> {}
  async newer(): Promise<void> {}
  async latest(): Promise<void> {}
  siblings(): ReadonlySignal<Siblings | null> {
    return signal(null);
  }
  async switch(): Promise<void> {}
  async undo(): Promise<void> {
    this.#history.value = this.#history.peek().slice(0, -1);
  }
  async showToModel(): Promise<void> {}
  async fork(): Promise<string | null> {
    return null;
  }
  async export(): Promise<Blob | null> {
    return null;
  }

  #forget(): void {
    this.#ending.abort();
    this.#ending = new AbortController();
    this.#names.clear();
    batch(() => {
      this.#pending.value = [];
      this.#failed.value = null;
      this.#history.value = [];
      this.#settings.value = settingsOf({});
    });
  }

  async #submit(input: readonly Item[], replaces: string | null, options: SendOptions = {}): Promise<void> {
    const others = this.#pending.peek();
    const name = options.idempotencyKey ?? freshKey();
    const state = others.length > 0 ? "queued" : "sending";
    const pending = new PendingTurn({ name, isLocal: true, input, replaces, state });
    batch(() => {
      this.#failed.value = null;
      this.#pending.value = [...others, pending];
    });
    if (others.length > 0 && options.onBusy === "reject") {
      return this.#end(pending, { code: "conversation_busy", message: "" });
    }
    if (options.onBusy === "interrupt" || options.onBusy === "rollback") {
      const policy = options.onBusy === "rollback" ? "discard" : "keep";
      for (const which of others) {
        if (policy === "discard") this.#rolledBack.add(which);
        await this.stop({ which, policy });
      }
    }
    const { signal: ending } = this.#ending;
    this.#last = this.#last.then(() => this.#run(pending, options, ending));
    await this.#last;
  }

  /** Send it, and stream the answer. Never throws. */
  async #run(pending: PendingTurn, options: SendOptions, ending: AbortSignal): Promise<void> {
    if (ending.aborted || this.#stopped.has(pending)) return;
    const before = this.#before(pending);
    const input = messagesOf(pending.input.peek());
    const chat = this.#chat();
    const all = { ...turnOptionsOf(this.#settings.peek()), ...options };
    const { model = this.#session.composers.modelOf(this) ?? undefined, instructions, settings } = all;
    const sendOptions = { model, instructions, settings, onStop: "keep", signal: ending } as const;
    const startedAt = Date.now();
    try {
      pending.state.value = "sending";
      const history = before.flatMap(({ messages }) => messages);
      const stream = chat.send([...history, ...input], sendOptions);
      this.#streams.set(pending, stream);
      let end: Extract<UnkeptEvent, { type: "turn.finished" }> | null = null;
      for await (const event of stream) end = applyEvent(pending, event) ?? end;
      if (ending.aborted) return;
      const messages = chat.messages.slice(history.length);
      this.#settle(pending, before, {
        messages,
        startedAt,
        details: { model, usage: end?.usage ?? null, finish_reason: end?.reason },
      });
    } catch (problem) {
      if (!ending.aborted) this.#end(pending, problem);
    } finally {
      this.#streams.delete(pending);
    }
  }

  /** Add the answered or stopped turn. */
  #settle(
    pending: PendingTurn,
    before: readonly UnkeptTurn[],
    { messages, startedAt, details }: { messages: UnkeptTurn["messages"]; startedAt: number; details: Turn["details"] },
  ): void {
    const policy = this.#stopped.get(pending);
    if (messages.length === 0 || policy === "discard") return this.#end(pending, null);
    const turn: Turn = {
      id: `unkept ${pending.name}`,
      number: before.length + 1,
      kind: policy === undefined ? "completed" : "interrupted",
      parent: before.at(-1)?.turn.id ?? null,
      createdAt: startedAt,
      committedAt: Date.now(),
      input: pending.input.peek(),
      output: outputOf(pending),
      hidden: [],
      hiddenFromModel: [],
      details,
    };
    this.#names.set(turn.id, pending.name);
    batch(() => {
      this.#history.value = [...before, { turn, messages }];
      this.#leave(pending);
    });
  }

  /** It failed, or, without a problem, was stopped. */
  #end(pending: PendingTurn, problem: unknown): void {
    const [input, replaces] = [pending.input.peek(), pending.replaces.peek()];
    const request = { name: pending.name, replaces, isLocal: true, input, hasBegun: pending.hasBegun };
    const isReplaced = problem === null && this.#rolledBack.has(pending);
    batch(() => {
      if (!isReplaced) this.#failed.value = failedTurnOf(request, problem ?? { code: "turn_stopped", message: "" });
      this.#leave(pending);
    });
  }

  #leave(pending: PendingTurn): void {
    this.#pending.value = this.#pending.peek().filter((each) => each !== pending);
  }

  /** The turns before the one that it replaces. */
  #before({ replaces }: PendingTurn): readonly UnkeptTurn[] {
    const history = this.#history.peek();
    const at = history.findIndex(({ turn }) => turn.id === replaces.peek());
    return at < 0 ? history : history.slice(0, at);
  }

  /** Each request carries the whole conversation, so that it is stored nowhere else. */
  #chat(): UnkeptChat {
    const { client, controls, threads } = this.#session;
    const { scope } = threads.newChat.peek();
    return new UnkeptChat(client.baseUrl, { apiKey: () => controls.apiKey(), scope, allowHttp: true });
  }
}

/** Apply one event. Returns the last one, which reports how the answer ended. */
function applyEvent(pending: PendingTurn, event: UnkeptEvent): (UnkeptEvent & { type: "turn.finished" }) | null {
  const number = pending.last + 1;
  if (pending.last === 0) pending.apply({ type: "turn.started", number });
  if (event.type === "text.delta") pending.apply({ ...event, number: pending.last + 1 });
  else if (event.type === "reasoning.delta") pending.reasoning.value += event.text;
  else if (event.type === "item.done") pending.apply({ ...event, number: pending.last + 1 });
  else return event;
  return null;
}

/** The answer as items. */
function outputOf(pending: PendingTurn): readonly Item[] {
  const [thought, text, items] = [pending.reasoning.peek(), pending.text.peek(), pending.items.peek()];
  return [
    ...(thought ? [thoughtItem(thought)] : []),
    ...(text || !items.length ? [answerItem(text)] : []),
    ...items,
  ];
}
