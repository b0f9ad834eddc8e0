/** Sends messages in order, and follows each to its end. */

import { effect } from "@preact/signals";
import type { Item, Stream, TurnEvent, TurnStream } from "turnledger";
import type { TurnReader, TurnOutcome } from "./turn-reader";
import type { LazyChat } from "./lazy-chat";
import type { PendingTurns } from "./pending-turns";
import { PendingTurn } from "./pending-turn";
import { waitFor } from "../browser/wait-for";
import type { TabOutbox } from "./outbox";

export interface OutgoingMessage {
  readonly name: string;
  readonly input: readonly Item[];
  readonly replaces: string | null;
  /** Whether a closed tab had already sent it. */
  readonly wasSent?: boolean;
  /** Whether it runs before queued turns. */
  readonly skipsQueue?: boolean;
  /** Request the turn under its name; a retry waits for `beforeRetry`. */
  request(beforeRetry: () => Promise<void>): TurnStream;
}

interface SenderContext {
  readonly chat: LazyChat;
  readonly pending: PendingTurns;
  readonly reader: TurnReader;
  readonly outbox: Pick<TabOutbox, "whileHeld">;
  read(turn: string, after: number): Stream<TurnEvent>;
  /** A server has accepted it, as this turn. */
  onAccepted(pending: PendingTurn): void;
  /** It has ended; resolves when that is shown. */
  onEnded(pending: PendingTurn, outcome: TurnOutcome): Promise<void>;
}

const WITHDRAWN: TurnOutcome = { kind: "failed", problem: { code: "turn_stopped", message: "" } };

export class TurnSender {
  readonly #context: SenderContext;
  readonly #withdrawals = new Map<PendingTurn, AbortController>();
  /** Resolves when a server has accepted the last message: requests can overtake each other. */
  #last: Promise<void> = Promise.resolve();

  constructor(context: SenderContext) {
    this.#context = context;
  }

  /** Send a message, and resolve when it has ended, however it did. */
  async send(message: OutgoingMessage): Promise<void> {
    const { pending: queue, outbox } = this.#context;
    const { name, input, replaces, skipsQueue, wasSent = false } = message;
    if (queue.all.peek().some((each) => each.name === name)) return;
    const pending = new PendingTurn({ name, isLocal: true, input, replaces });
    pending.isSent.value = wasSent;
    const earlier = skipsQueue ? [] : queue.all.peek().filter((each) => each.isLocal);
    const withdrawal = new AbortController();
    this.#withdrawals.set(pending, withdrawal);
    queue.add(pending, skipsQueue);
    const before = this.#last;
    const isGone = (): boolean => withdrawal.signal.aborted || !queue.all.value.includes(pending);
    this.#last = waitFor(() => pending.turnId.value !== null || isGone());
    const releases = [
      effect(() => {
        if (pending.turnId.value !== null) this.#context.onAccepted(pending);
      }),
      effect(() => {
        if (pending.state.value === "running") queue.moveStarted(pending);
      }),
    ];
    const end = (outcome: TurnOutcome): Promise<void> =>
      this.#context.onEnded(pending, withdrawal.signal.aborted ? WITHDRAWN : outcome);
    try {
      await outbox.whileHeld(name, async () => {
        await unlessAborted(withdrawal.signal, before);
        await end(await this.#run(pending, message, earlier, withdrawal.signal));
      });
    } catch (problem) {
      await end({ kind: "failed", problem });
    } finally {
      for (const release of releases) release();
      this.#withdrawals.delete(pending);
      queue.remove(pending);
    }
  }

  /** Withdraw a message that no server is known to have. Returns whether this tab sent it. */
  withdraw(pending: PendingTurn): boolean {
    const withdrawal = this.#withdrawals.get(pending);
    withdrawal?.abort();
    return withdrawal !== undefined;
  }

  async #run(
    pending: PendingTurn,
    message: OutgoingMessage,
    earlier: readonly PendingTurn[],
    withdrawn: AbortSignal,
  ): Promise<TurnOutcome> {
    const { chat, reader } = this.#context;
    try {
      await unlessAborted(withdrawn, chat.create());
    } catch (problem) {
      return { kind: "failed", problem };
    }
    const read = (turn: string, after: number): Stream<TurnEvent> => this.#context.read(turn, after);
    const mayRetry = (): (() => boolean) => this.#mayRetry(earlier);
    const request = (): TurnStream => message.request(() => waitFor(mayRetry()));
    return reader.follow(pending, { request, read, mayRetry }, withdrawn);
  }

  /** Whether each of these has ended or shown progress since now. A restarted server has lost its queue, and a retry
   * must not overtake earlier messages. */
  #mayRetry(earlier: readonly PendingTurn[]): () => boolean {
    const { pending } = this.#context;
    const counts = new Map(earlier.map((each) => [each, each.eventCount.peek()]));
    const hasNews = (each: PendingTurn): boolean => each.eventCount.value !== counts.get(each);
    return () => earlier.every((each) => !pending.all.value.includes(each) || hasNews(each));
  }
}

/** Await a promise, unless the signal aborts first: then throw its reason. */
async function unlessAborted(signal: AbortSignal, promised: Promise<unknown>): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promised.then(() => resolve(), reject);
  });
}
