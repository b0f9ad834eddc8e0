/** Records messages of unknown outcome, so that a page or program can end and send them later, once. */

import type { Client } from "./client.js";
import { errorOf } from "./error-of.js";
import { NotAdmitted, ServerUnavailable, TurnledgerError } from "./errors.js";
import type { Answer } from "./shapes.js";
import type { Recorder, UnsentMessage } from "./wire.js";

/** Storage such as `localStorage`: values must survive the end of the program. */
export interface OutboxStorage {
  readonly length: number;
  key(index: number): string | null;
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

/** Milliseconds by which a message may be in the future: clocks are set back a little all the time. */
const SKEW = 60_000;

/** A message, and its outcome. */
export interface Sent {
  readonly unsent: UnsentMessage;
  readonly answer?: Answer;
  readonly error?: TurnledgerError;
}

export interface OutboxOptions {
  /** Milliseconds in which it is safe to send a recorded message again: servers remember it for a day. */
  safeFor?: number;
  /** Maximum number of messages. */
  maxMessages?: number;
  now?: () => number;
}

/** Pass it to the client: `new Client(url, { outbox })`. A message is recorded before its first byte is sent, and
 * removed once its outcome is known. Pages with the same storage share it. It never contains a token. */
export class Outbox implements Recorder {
  readonly #storage: OutboxStorage;
  readonly #prefix: string;
  readonly #options: Required<OutboxOptions>;
  #last = 0;

  /** `sender`: the owner of the messages; a sender sends only its own. */
  constructor(storage: OutboxStorage, sender: string, options: OutboxOptions = {}) {
    this.#storage = storage;
    this.#prefix = `turnledger:${encodeURIComponent(sender)}:`;
    this.#options = { safeFor: 23 * 3_600_000, maxMessages: 1_000, now: Date.now, ...options };
  }

  /** Record a message. An existing one stays as it is. Throws StoreFull: then it is not sent. */
  record(unsent: Omit<UnsentMessage, "recordedAt">): void {
    const name = this.#prefix + unsent.idempotencyKey;
    try {
      if (this.#storage.getItem(name) !== null) return;
      if (this.#names().length >= this.#options.maxMessages) throw new Error(`there are ${this.#options.maxMessages}`);
      // Unique times: messages are sent in this order.
      this.#last = Math.max(this.#options.now(), this.#last + 1);
      this.#storage.setItem(name, JSON.stringify({ ...unsent, recordedAt: this.#last }));
    } catch (problem) {
      throw errorOf("store_full", `No room for another message (${String(problem)}): send or forget some.`);
    }
  }

  /** Remove a message, whatever its outcome. */
  forget(idempotencyKey: string): void {
    this.#storage.removeItem(this.#prefix + idempotencyKey);
  }

  /** Return all of them, the oldest first, including those that are being sent. */
  pending(): UnsentMessage[] {
    const found = this.#names().flatMap((name) => messageOf(this.#storage.getItem(name)));
    return found.sort((one, other) => one.recordedAt - other.recordedAt);
  }

  /** Send the messages for this client's server again, in order, each under its idempotencyKey, so that it is carried
   * out once. Skips, in each chat, those after one that stays. A message that the server may have forgotten is not
   * sent: its outcome is OutcomeUnknown. Stops at the first that finds no server or is not authorized; the others
   * stay. */
  async sendAll(client: Client, options: { signal?: AbortSignal } = {}): Promise<Sent[]> {
    const sent: Sent[] = [];
    const blocked = new Set<string>();
    for (const unsent of this.pending()) {
      const chat = chatOf(unsent);
      if (unsent.baseUrl !== client.baseUrl || blocked.has(chat)) continue;
      try {
        sent.push({ unsent, answer: await this.#send(client, unsent, options) });
      } catch (error) {
        if (!(error instanceof TurnledgerError)) throw error;
        sent.push({ unsent, error });
        // A refusal (403) may concern one chat or model only.
        if (error instanceof ServerUnavailable || (error instanceof NotAdmitted && error.status !== 403)) break;
        if (this.#isSafe(unsent) && this.#names().includes(this.#prefix + unsent.idempotencyKey)) blocked.add(chat);
      }
    }
    return sent;
  }

  async #send(client: Client, unsent: UnsentMessage, options: { signal?: AbortSignal }): Promise<Answer> {
    if (this.#isSafe(unsent)) return client.resend(unsent, options).answer();
    const message =
      "Too old to retry safely: it may have been answered. Check its chat, then forget it.";
    throw errorOf("outcome_unknown", message, { idempotencyKey: unsent.idempotencyKey });
  }

  #isSafe({ recordedAt }: UnsentMessage): boolean {
    const age = this.#options.now() - recordedAt;
    return age > -SKEW && age < this.#options.safeFor;
  }

  #names(): string[] {
    const names = Array.from({ length: this.#storage.length }, (_, index) => this.#storage.key(index) ?? "");
    return names.filter((name) => name.startsWith(this.#prefix));
  }
}

/** Parse a recorded message; none if it is something else. */
function messageOf(text: string | null): UnsentMessage[] {
  try {
    const found = JSON.parse(text ?? "null") as UnsentMessage | null;
    return found?.idempotencyKey ? [found] : [];
  } catch {
    return [];
  }
}

function chatOf({ body }: UnsentMessage): string {
  const { chat, conversation_key, scope } = JSON.parse(body) as Record<string, unknown>;
  return String([chat, conversation_key, scope]);
}
