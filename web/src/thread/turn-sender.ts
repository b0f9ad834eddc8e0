/** Messages from here: each is brought to its end, in the order in which they were sent. */

import { effect } from "@preact/signals";
import type { Item, Stream, TurnEvent, TurnStream } from "turnledger";
import type { Following, Outcome } from "./turn-reader";
import type { MadeChat } from "./lazy-chat";
import type { OnItsWay } from "./pending-turns";
import { Running } from "./pending-turn";
import { settled } from "../browser/wait-for";
import type { UnsentMessages } from "./outbox";

export interface Message {
  readonly name: string;
  readonly input: readonly Item[];
  /** The turn whose place it takes. */
  readonly replaces: string | null;
  /** Whether it was asked for before, by a tab that is gone. */
  readonly wasAsked?: boolean;
  /** Whether it goes before those that wait. */
  readonly goesFirst?: boolean;
  /** Ask for the turn, under the name; what is given is waited for before it is sent once more. */
  ask(beforeRetry: () => Promise<void>): TurnStream;
}

interface Sender {
  readonly chat: MadeChat;
  readonly way: OnItsWay;
  readonly following: Following;
  readonly unsent: Pick<UnsentMessages, "holding">;
  read(turn: string, after: number): Stream<TurnEvent>;
  /** A server has it, as this turn. */
  taken(running: Running): void;
  /** It has ended: resolves when that is shown. */
  ended(running: Running, outcome: Outcome): Promise<void>;
}

/** So many at most hold a connection while nobody has said which turns they are: servers take their time to say so of
 * what waits in line, and browsers have few. */
const HELD = 2;
const TAKEN_BACK: Outcome = { kind: "failed", problem: { code: "turn_stopped", message: "It was taken back." } };

export class Sending {
  readonly #sender: Sender;
  readonly #withdrawals = new Map<Running, AbortController>();
  /** Resolves when a server has the last one that was sent: requests overtake one another. */
  #last: Promise<void> = Promise.resolve();

  constructor(sender: Sender) {
    this.#sender = sender;
  }

  /** Resolves when it has ended, however it did. */
  async send(message: Message): Promise<void> {
    const { way, unsent } = this.#sender;
    const { name, input, replaces, goesFirst, wasAsked = false } = message;
    if (way.all.peek().some((each) => each.name === name)) return;
    const running = new Running({ name, isHere: true, input, replaces });
    running.isAsked.value = wasAsked;
    const earlier = goesFirst ? [] : way.all.peek().filter((each) => each.isHere);
    const withdrawal = new AbortController();
    this.#withdrawals.set(running, withdrawal);
    way.add(running, goesFirst);
    const before = this.#last;
    const isGone = (): boolean => withdrawal.signal.aborted || !way.all.value.includes(running);
    this.#last = settled(() => running.turnId.value !== null || running.guess.value !== null || isGone());
    const releases = [
      effect(() => {
        if (running.turnId.value !== null) this.#sender.taken(running);
      }),
      effect(() => {
        if (running.state.value === "running") way.begun(running);
      }),
    ];
    const end = (outcome: Outcome): Promise<void> =>
      this.#sender.ended(running, withdrawal.signal.aborted ? TAKEN_BACK : outcome);
    try {
      await unsent.holding(name, async () => {
        await unlessAborted(withdrawal.signal, before);
        await unlessAborted(withdrawal.signal, settled(() => wasAsked || way.held < HELD || isGone()));
        await end(await this.#carry(running, message, earlier, withdrawal.signal));
      });
    } catch (problem) {
      await end({ kind: "failed", problem });
    } finally {
      for (const release of releases) release();
      this.#withdrawals.delete(running);
      way.leave(running);
    }
  }

  /** Take it back, if no server has it as far as is known. Returns whether it was from here. */
  withdraw(running: Running): boolean {
    const withdrawal = this.#withdrawals.get(running);
    withdrawal?.abort();
    return withdrawal !== undefined;
  }

  async #carry(
    running: Running,
    message: Message,
    earlier: readonly Running[],
    withdrawn: AbortSignal,
  ): Promise<Outcome> {
    const { chat, following } = this.#sender;
    try {
      await unlessAborted(withdrawn, chat.make());
    } catch (problem) {
      return { kind: "failed", problem };
    }
    const read = (turn: string, after: number): Stream<TurnEvent> => this.#sender.read(turn, after);
    const behind = (): (() => boolean) => this.#behind(earlier);
    const ask = (): TurnStream => message.ask(() => settled(behind()));
    return following.follow(running, { ask, read, behind }, withdrawn);
  }

  /** Whether each of these has ended, or told something since now. A server that ended forgot its line: what is asked
   * for once more shall not get there before those that were sent before it. */
  #behind(earlier: readonly Running[]): () => boolean {
    const { way } = this.#sender;
    const heard = new Map(earlier.map((each) => [each, each.news.peek()]));
    return () => earlier.every((each) => !way.all.value.includes(each) || each.news.value !== heard.get(each));
  }
}

/** What is promised, unless the signal comes first: then throws its reason. */
async function unlessAborted(signal: AbortSignal, promised: Promise<unknown>): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promised.then(() => resolve(), reject);
  });
}
