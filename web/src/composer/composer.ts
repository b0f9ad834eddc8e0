/** The composer of one chat: its draft, and how a message is sent. */

import { computed, effect, signal, untracked, type ReadonlySignal, type Signal } from "@preact/signals";
import { errors, wordsOf, type Item, type OnBusy, type OnStop } from "turnledger";
import { waitFor } from "../browser/wait-for";
import type { Session } from "../session/session";
import type { FailedTurn, Thread } from "../thread/thread";
import type { Composers } from "./composers";
import { NEW_CHAT } from "./drafts";
import { ModelChoice } from "./model-choice";
import { DEFAULT_POLICY } from "./busy-policies";
import { strings } from "../strings";

interface Message {
  readonly text: string;
  readonly onBusy: OnBusy;
}

let count = 0;

export class Composer {
  readonly number = ++count;
  readonly thread: Thread;
  readonly model: ModelChoice;
  readonly #session: Session;
  readonly #composers: Composers;
  readonly #text: Signal<string>;
  /** Failed messages; queued ones may fail one after the other. */
  readonly #offers = signal<readonly string[]>([]);
  readonly #waiting = signal<readonly Message[]>([]);
  readonly #leave: () => void;
  /** The text that was put back after a failure. */
  #putBack: string | null = null;
  /** The index of the recalled message, counted from the last; null: none. */
  #recalled: number | null = null;
  #unlisten: () => void = () => {};

  constructor(session: Session, composers: Composers, thread: Thread) {
    this.#session = session;
    this.#composers = composers;
    this.thread = thread;
    this.model = new ModelChoice(session, thread);
    this.#text = signal(thread.isKept ? composers.drafts.open(draftOf(thread)) : "");
    const offered = thread.isKept && composers.drafts.read(offeredDraftOf(draftOf(thread)));
    if (offered) this.#offers.value = [offered];
    const leaving = [this.#followChat(), this.#followFailures(), () => this.#unlisten()];
    this.#leave = () => leaving.forEach((leave) => leave());
  }

  get text(): ReadonlySignal<string> {
    return this.#text;
  }

  /** Failed text that could not be put back because the field was not empty. */
  readonly offered: ReadonlySignal<string | null> = computed(() => this.#offers.value.join("\n\n") || null);

  /** Messages that wait until it is known how to send them. */
  get waiting(): ReadonlySignal<readonly Message[]> {
    return this.#waiting;
  }

  /** Whether a turn runs that can be stopped. */
  readonly isBusy: ReadonlySignal<boolean> = computed(() =>
    this.thread.pending.value.some(({ state }) => state.value !== "ending"),
  );

  /** Whether it has pending messages, or text that is stored nowhere else. */
  get isNeeded(): boolean {
    const isUnkept = !this.thread.isKept && this.#text.peek() !== "";
    const pending = this.thread.pending.peek().length + this.#waiting.peek().length;
    return isUnkept || pending > 0 || this.offered.peek() !== null;
  }

  /** Whether the text is too long to be stored as a draft. */
  readonly isTooLong: ReadonlySignal<boolean> = computed(
    () => this.thread.isKept && this.#text.value.length > this.#composers.drafts.maxLength,
  );

  /** Why sending is blocked, or null. A lost connection is no reason: messages wait for it. */
  readonly blockedReason: ReadonlySignal<string | null> = computed(() => {
    const problem = this.thread.problem.value;
    if (this.#composers.isExpired.value) return strings.composer.expired;
    if (problem instanceof errors.ConversationUnavailable) return ""; // the thread says why
    if (this.#session.areModelsKnown.value && this.model.name.value === null) return strings.composer.noModel;
    return null;
  });

  /** Whether the models, and the model and settings of this chat are known. */
  readonly #isReady: ReadonlySignal<boolean> = computed(() => {
    const { isLoaded, problem } = this.thread;
    if (!this.#session.areModelsKnown.value) return false;
    const isLost = problem.value instanceof errors.TurnledgerError && problem.value.isRetryable;
    return isLoaded.value || (problem.value !== null && !isLost); // it will fail, with the reason
  });

  /** Whether there is text to send, and nothing blocks it. */
  readonly canSend: ReadonlySignal<boolean> = computed(
    () => this.blockedReason.value === null && this.#text.value.trim() !== "",
  );

  write(text: string): void {
    if (text === this.#text.peek()) return;
    this.#recalled = null;
    this.#put(text);
  }

  /** Send the text. It is stored before it is sent, and put back if sending fails. Returns whether there was anything
   * to send. */
  send(): boolean {
    // Trim blank lines around the text, but keep the indentation of its first line.
    const text = this.#text.peek().replace(/^(\s*\n)+|\s+$/g, "");
    if (text === "" || this.blockedReason.peek() !== null) return false;
    const message = { text, onBusy: this.isBusy.peek() ? this.#composers.policy.peek() : DEFAULT_POLICY };
    this.#putBack = null;
    this.#recalled = null;
    this.model.accept();
    if (this.#isReady.peek()) void this.#deliver(message);
    else this.#wait(message);
    this.#put("");
    this.#keep();
    return true;
  }

  stop(policy: OnStop = "keep"): void {
    void this.thread.stop({ policy });
  }

  /** Put the failed text before the text in the field. */
  restoreOffered(): void {
    const offered = this.offered.peek();
    if (offered === null) return;
    const written = this.#text.peek();
    this.#offer([]);
    this.#put(written === "" ? offered : `${offered}\n\n${written}`);
  }

  /** Offer text that has lost its place in this chat. */
  offer(text: string): void {
    this.#offer([...this.#offers.peek().filter((each) => each !== text), text]);
  }

  /** Remove a failed text again, unless the user has changed it. */
  takeBack(text: string): void {
    this.#offer(this.#offers.peek().filter((each) => each !== text));
    if (this.#text.peek() !== text) return;
    this.#put("");
    this.#keep();
  }

  /** Drop the failed text. */
  discardOffered(): void {
    this.#offer([]);
  }

  /** Recall an earlier message (or with -1, a later one) if nothing else is written. Returns whether one was recalled.
   * */
  recall(step: 1 | -1): boolean {
    const sent = this.#sentTexts();
    if (this.#recalled === null && (this.#text.peek() !== "" || step === -1)) return false;
    const next = (this.#recalled ?? -1) + step;
    if (next >= sent.length) return false;
    this.#put(next < 0 ? "" : (sent.at(-1 - next) as string));
    this.#recalled = next < 0 ? null : next;
    return true;
  }

  close(): void {
    this.#leave();
  }

  #deliver({ text, onBusy }: Message): Promise<void> {
    return this.thread.send(text, { model: this.model.name.peek() ?? undefined, onBusy });
  }

  #wait(message: Message): void {
    this.#waiting.value = [...this.#waiting.value, message];
    if (this.#waiting.value.length > 1) return;
    void waitFor(() => this.#isReady.value).then(() => {
      const waiting = this.#waiting.value;
      this.#waiting.value = [];
      for (const each of waiting) void this.#deliver(each);
      this.#keep();
    });
  }

  #put(text: string): void {
    this.#text.value = text;
    if (this.thread.isKept) this.#composers.drafts.write(draftOf(this.thread), this.#draft());
  }

  #keep(): void {
    if (this.thread.isKept) this.#composers.drafts.writeNow(draftOf(this.thread), this.#draft());
  }

  /** Offer these texts, also after a reload. */
  #offer(texts: readonly string[]): void {
    this.#offers.value = texts;
    const offered = this.offered.peek() ?? "";
    if (this.thread.isKept) this.#composers.drafts.writeNow(offeredDraftOf(draftOf(this.thread)), offered);
  }

  /** The text that would be lost with this page, including waiting messages. */
  #draft(): string {
    const written = this.#text.peek();
    const waiting = this.#waiting.peek().map(({ text }) => text);
    return (written === "" ? waiting : [...waiting, written]).join("\n\n");
  }

  /** Earlier messages of the user, the last one at the end. */
  #sentTexts(): string[] {
    const inputs = [
      ...this.thread.turns.peek().map(({ input }) => input),
      ...this.thread.pending.peek().map(({ input }) => input.peek()),
    ];
    return inputs.map(textOfInput).filter((text) => text !== "");
  }

  /** Move the draft to the new chat when it gets its id, and keep it in sync between tabs. */
  #followChat(): () => void {
    let previous: string | null = null;
    return effect(() => {
      const { thread } = this;
      const id = thread.id.value;
      if (!thread.isKept) return;
      const { drafts } = this.#composers;
      untracked(() => {
        if (previous === NEW_CHAT && id !== null) {
          // Another tab may have a new chat with its own draft.
          if (drafts.read(NEW_CHAT) === this.#draft()) drafts.writeNow(NEW_CHAT, "");
          this.#keep();
          if (this.offered.peek() !== null) drafts.writeNow(offeredDraftOf(NEW_CHAT), "");
          this.#offer(this.#offers.peek());
        }
        previous = draftOf(thread);
        this.#unlisten();
        // New chats are separate in each tab.
        if (id !== null) this.#unlisten = drafts.listen(id, (text) => this.#follow(text));
      });
    });
  }

  #follow(text: string): void {
    this.#recalled = null;
    this.#text.value = text;
  }

  #followFailures(): () => void {
    return effect(() => {
      const failed = this.thread.failed.value;
      untracked(() => (failed ? this.#recover(failed) : this.#failureCleared()));
    });
  }

  /** Put failed text back into the field if that is empty; otherwise offer it. */
  #recover({ isLocal, text, replaces }: FailedTurn): void {
    // After a reload the failure belongs to no tab, but its text is still in the field.
    if (!isLocal && text === this.#text.peek()) this.#putBack = text;
    if (!isLocal || text === "") return;
    if (this.#text.peek() === "" && replaces === null) {
      this.#putBack = text;
      this.#put(text);
      this.#keep();
    } else if (this.#text.peek() !== text) this.offer(text);
  }

  /** Handle a cleared failure: if the same text was sent again, remove it from the field. */
  #failureCleared(): void {
    const back = this.#putBack;
    const offers = this.#offers.peek();
    this.#putBack = null;
    if (back === null && offers.length === 0) return;
    // A retry clears the failure before it sends.
    queueMicrotask(() => {
      const resent = this.thread.pending.peek().map(({ input }) => textOfInput(input.peek()));
      const left = this.#offers.peek().filter((each) => !resent.includes(each));
      if (left.length < offers.length) this.#offer(left);
      if (back === null || !resent.includes(back) || this.#text.peek() !== back) return;
      this.#put("");
      this.#keep();
    });
  }
}

function draftOf(thread: Thread): string {
  return thread.id.peek() ?? NEW_CHAT;
}

export function offeredDraftOf(name: string): string {
  return `${name} offered`;
}

function textOfInput(input: readonly Item[]): string {
  return input
    .filter(({ role }) => role === "user")
    .map(wordsOf)
    .join("\n");
}
