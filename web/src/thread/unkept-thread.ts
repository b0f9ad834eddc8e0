/** A chat that is not kept: what was said is in the memory of this page, and is gone when it is left. */

import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";
import { freshKey, type ChatInfo, type Input, type Item, type OnStop, type Turn } from "turnledger";
import { UnkeptChat, type UnkeptEvent, type UnkeptMessage } from "turnledger/unkept";
import type { Session } from "../session/session";
import { failureOf } from "./failures";
import { answerItem, itemsOf, messagesOf, thoughtItem } from "./items";
import { Running } from "./pending-turn";
import type { Failed, SendOptions, ShownThread, Siblings } from "./thread";

/** A turn, and what of it is sent along with the next. */
interface Said {
  readonly turn: Turn;
  readonly messages: readonly UnkeptMessage[];
}

type Stream = ReturnType<UnkeptChat["send"]>;

export class UnkeptThread implements ShownThread {
  readonly id: ReadonlySignal<string | null> = signal(null);
  readonly info: ReadonlySignal<ChatInfo | null> = signal(null);
  readonly isKept = false;
  readonly hasOlder: ReadonlySignal<boolean> = signal(false);
  readonly problem: ReadonlySignal<unknown> = signal(null);
  readonly isLoaded: ReadonlySignal<boolean> = signal(true);
  readonly turns: ReadonlySignal<readonly Turn[]>;
  readonly #said = signal<readonly Said[]>([]);
  readonly #running = signal<readonly Running[]>([]);
  readonly #failed = signal<Failed | null>(null);
  readonly #session: Session;
  readonly #closing = new AbortController();
  /** Ends with what was said so far. */
  #ending = new AbortController();
  readonly #streams = new Map<Running, Stream>();
  /** What becomes of those that somebody has stopped. */
  readonly #stopped = new Map<Running, OnStop>();
  readonly #names = new Map<string, string>();
  /** Ends with the last one that was asked for. */
  #last: Promise<void> = Promise.resolve();

  constructor(session: Session) {
    this.#session = session;
    this.turns = computed(() => this.#said.value.map(({ turn }) => turn));
    // Browsers put pages aside as they are, for whoever comes back.
    addEventListener("pagehide", () => this.#forget(), { signal: this.#closing.signal });
  }

  get running(): ReadonlySignal<readonly Running[]> {
    return this.#running;
  }

  get failed(): ReadonlySignal<Failed | null> {
    return this.#failed;
  }

  nameOf({ id }: Turn): string {
    return this.#names.get(id) ?? id;
  }

  send(input: Input, options?: SendOptions): Promise<void> {
    return this.#ask(itemsOf(input), null, options);
  }

  edit(turn: Turn, input: Input, options?: SendOptions): Promise<void> {
    return this.#ask(itemsOf(input), turn.id, options);
  }

  regenerate(turn: Turn, options?: SendOptions): Promise<void> {
    return this.#ask(turn.input, turn.id, options);
  }

  async retry(options?: SendOptions): Promise<void> {
    const failed = this.#failed.peek();
    if (failed) await this.#ask(failed.input, failed.replaces, options);
  }

  async stop({ which, policy = "keep" }: { which?: Running; policy?: OnStop } = {}): Promise<void> {
    const running = which ?? this.#running.peek()[0];
    if (!running) return;
    this.#stopped.set(running, policy);
    running.state.value = "stopping";
    const stream = this.#streams.get(running);
    if (stream) stream.close();
    else this.#end(running, null); // it waits in line: nothing of it was sent
  }

  forgetFailure(): void {
    this.#failed.value = null;
  }

  close(): void {
    this.#closing.abort();
    this.#forget();
  }

  // What only a server could do that keeps it.
  async older(): Promise<void> {}
  siblings(): ReadonlySignal<Siblings | null> {
    return signal(null);
  }
  async switch(): Promise<void> {}
  async undo(): Promise<void> {
    this.#said.value = this.#said.peek().slice(0, -1);
  }
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
      this.#running.value = [];
      this.#failed.value = null;
      this.#said.value = [];
    });
  }

  async #ask(input: readonly Item[], replaces: string | null, options: SendOptions = {}): Promise<void> {
    const others = this.#running.peek();
    const name = options.idempotencyKey ?? freshKey();
    const state = others.length > 0 ? "queued" : "sending";
    const running = new Running({ name, isHere: true, input, replaces, state });
    batch(() => {
      this.#failed.value = null;
      this.#running.value = [...others, running];
    });
    if (others.length > 0 && options.onBusy === "reject") {
      return this.#end(running, { code: "conversation_busy", message: "" });
    }
    if (options.onBusy === "interrupt" || options.onBusy === "rollback") {
      const policy = options.onBusy === "rollback" ? "discard" : "keep";
      for (const which of others) await this.stop({ which, policy });
    }
    const { signal: ending } = this.#ending;
    this.#last = this.#last.then(() => this.#run(running, options, ending));
    await this.#last;
  }

  /** Have it answered. Never throws. */
  async #run(running: Running, options: SendOptions, ending: AbortSignal): Promise<void> {
    if (ending.aborted || this.#stopped.has(running)) return;
    const before = this.#before(running);
    const input = messagesOf(running.input.peek());
    const chat = this.#chat();
    const { model = this.#session.composing.modelOf(this) ?? undefined, instructions, settings } = options;
    const asked = { model, instructions, settings, onStop: "keep", signal: ending } as const;
    const startedAt = Date.now();
    try {
      running.state.value = "sending";
      const history = before.flatMap(({ messages }) => messages);
      const stream = chat.send([...history, ...input], asked);
      this.#streams.set(running, stream);
      let usage: unknown = null;
      for await (const event of stream) usage = hear(running, event) ?? usage;
      if (ending.aborted) return;
      const messages = chat.messages.slice(history.length);
      this.#settle(running, before, { messages, startedAt, details: { model, usage } });
    } catch (problem) {
      if (!ending.aborted) this.#end(running, problem);
    } finally {
      this.#streams.delete(running);
    }
  }

  /** It was answered, or stopped. */
  #settle(
    running: Running,
    before: readonly Said[],
    { messages, startedAt, details }: { messages: Said["messages"]; startedAt: number; details: Turn["details"] },
  ): void {
    const policy = this.#stopped.get(running);
    if (messages.length === 0 || policy === "discard") return this.#end(running, null);
    const turn: Turn = {
      id: `unkept ${running.name}`,
      number: before.length + 1,
      kind: policy === undefined ? "completed" : "interrupted",
      parent: before.at(-1)?.turn.id ?? null,
      createdAt: startedAt,
      committedAt: Date.now(),
      input: running.input.peek(),
      output: outputOf(running),
      hidden: [],
      details,
    };
    this.#names.set(turn.id, running.name);
    batch(() => {
      this.#said.value = [...before, { turn, messages }];
      this.#leave(running);
    });
  }

  /** It never happened: it failed, or, without a problem, was stopped. */
  #end(running: Running, problem: unknown): void {
    const { name, replaces } = running;
    const asked = { name, replaces, isHere: true, input: running.input.peek() };
    batch(() => {
      this.#failed.value = failureOf(asked, problem ?? { code: "turn_stopped", message: "" });
      this.#leave(running);
    });
  }

  #leave(running: Running): void {
    this.#running.value = this.#running.peek().filter((each) => each !== running);
  }

  /** What was said before the place that it takes. */
  #before({ replaces }: Running): readonly Said[] {
    const said = this.#said.peek();
    const at = said.findIndex(({ turn }) => turn.id === replaces);
    return at < 0 ? said : said.slice(0, at);
  }

  /** Each is asked with all that is to be known: so nothing is anywhere but here. */
  #chat(): UnkeptChat {
    const { client, ways, threads } = this.#session;
    const { scope } = threads.newChat.peek();
    return new UnkeptChat(client.baseUrl, { apiKey: () => ways.apiKey(), scope, allowHttp: true });
  }
}

/** Take in one event; returns the tokens that it took, where this tells so. */
function hear(running: Running, event: UnkeptEvent): unknown {
  const number = running.last + 1;
  if (running.last === 0) running.hear({ type: "turn.started", number });
  if (event.type === "text.delta") running.hear({ ...event, number: running.last + 1 });
  else if (event.type === "reasoning.delta") running.reasoning.value += event.text;
  else if (event.type === "item.done") running.hear({ ...event, number: running.last + 1 });
  else return event.usage;
  return null;
}

/** What was answered, as items of the history. */
function outputOf(running: Running): readonly Item[] {
  const [thought, text] = [running.reasoning.peek(), running.text.peek()];
  return [
    ...(thought ? [thoughtItem(thought)] : []),
    ...(text ? [answerItem(text)] : []),
    ...running.items.peek(),
  ];
}
