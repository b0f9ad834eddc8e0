/** The composers of all open chats, and their drafts. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { OnBusy } from "turnledger";
import type { Session } from "../session/session";
import type { Thread } from "../thread/thread";
import { Composer, offeredDraftOf } from "./composer";
import { Drafts } from "./drafts";
import { DEFAULT_POLICY } from "./busy-policies";

/** How many composers of hidden chats are kept. */
const MAX_HIDDEN = 16;
/** Longer timers would fire at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

export class Composers {
  readonly drafts: Drafts;
  /** What happens to a message while another is answered: one choice for all chats. */
  readonly policy: Signal<OnBusy> = signal(DEFAULT_POLICY);
  readonly #session: Session;
  readonly #composers = new Map<Thread, Composer>();
  readonly #dropped = new Map<string, string>();
  readonly #isExpired = signal(false);
  readonly #leaving: (() => void)[] = [];

  constructor(session: Session) {
    this.#session = session;
    this.drafts = new Drafts(session.storage);
    this.#leaving.push(this.#followDeletions(), this.#awaitExpiry());
  }

  get isExpired(): ReadonlySignal<boolean> {
    return this.#isExpired;
  }

  of(thread: Thread): Composer {
    const composer = this.#composers.get(thread) ?? new Composer(this.#session, this, thread);
    this.#composers.delete(thread); // most recently used last
    this.#composers.set(thread, composer);
    for (const [other, old] of this.#composers) {
      if (this.#composers.size <= MAX_HIDDEN) break;
      if (old === composer || old.isNeeded) continue;
      this.#composers.delete(other);
      old.close();
    }
    return composer;
  }

  /** The model that answers in a chat; null if unknown. */
  modelOf(thread: Thread): string | null {
    return this.of(thread).model.name.peek();
  }

  close(): void {
    for (const leave of this.#leaving) leave();
    for (const composer of this.#composers.values()) composer.close();
    this.#composers.clear();
    this.drafts.close();
  }

  /** Delete the draft with its chat, and restore it with it. */
  #followDeletions(): () => void {
    return this.#session.feed.listen((change) => {
      if (change.type === "chat.deleted") {
        this.#dropped.set(change.chat, this.drafts.read(change.chat));
        this.drafts.drop(change.chat);
        this.drafts.drop(offeredDraftOf(change.chat));
      } else if (change.type === "chat.restored") {
        const text = this.#dropped.get(change.chat);
        if (text && this.#dropped.delete(change.chat)) this.drafts.writeNow(change.chat, text);
      }
    });
  }

  #awaitExpiry(): () => void {
    const { expiresAt } = this.#session.me;
    if (expiresAt == null) return () => {};
    let timer: ReturnType<typeof setTimeout>;
    const check = (): void => {
      const left = expiresAt - Date.now();
      this.#isExpired.value = left <= 0;
      if (left > 0) timer = setTimeout(check, Math.min(left, LONGEST_TIMER));
    };
    check();
    return () => clearTimeout(timer);
  }
}
