/** A chat, and somebody who writes in it, without a server. */

import { signal } from "@preact/signals";
import type { Change, Item, Model, Turn } from "turnledger";
import { Composers } from "../../src/composer/composers";
import { MemoryStorage } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";
import type { Session } from "../../src/session/session";
import { PendingTurn } from "../../src/thread/pending-turn";
import type { FailedTurn, SendOptions, Thread } from "../../src/thread/thread";

export function said(text: string): Item[] {
  return [{ type: "message", role: "user", content: [{ type: "input_text", text }] }];
}

export function turnOf(text: string, details: Record<string, unknown> = {}): Turn {
  return { input: said(text), output: [], details } as unknown as Turn;
}

export function runningOf(text: string): PendingTurn {
  return new PendingTurn({ name: text, isLocal: true, input: said(text), state: "running" });
}

export function failedOf(text: string, more: Partial<FailedTurn> = {}): FailedTurn {
  const facts = { name: "a", input: said(text), replaces: null, code: "model_error", message: "No." };
  return { ...facts, text, isStopped: false, isLocal: true, ...more };
}

/** What is sent there is written down in `sent`. */
export class MadeUpThread {
  readonly id = signal<string | null>(null);
  readonly turns = signal<readonly Turn[]>([]);
  readonly pending = signal<readonly PendingTurn[]>([]);
  readonly failed = signal<FailedTurn | null>(null);
  readonly problem = signal<unknown>(null);
  readonly isLoaded = signal(true);
  readonly sent: (readonly [string, SendOptions])[] = [];
  readonly stopped: unknown[] = [];
  isKept = true;

  constructor(id: string | null = null) {
    this.id.value = id;
  }

  send(text: string, options: SendOptions): Promise<void> {
    this.sent.push([text, options]);
    return Promise.resolve();
  }

  stop(options: unknown): Promise<void> {
    this.stopped.push(options);
    return Promise.resolve();
  }

  get shown(): Thread {
    return this as unknown as Thread;
  }
}

export class MadeUpSession {
  readonly models = signal<readonly Model[]>([{ id: "one" }, { id: "two" }]);
  readonly areModelsKnown = signal(true);
  readonly model = signal<string | null>("one");
  readonly storage: StorageScope;
  readonly chosen: string[] = [];
  readonly listeners: ((change: Change) => void)[] = [];
  readonly feed = { listen: (listener: (change: Change) => void) => (this.listeners.push(listener), () => {}) };
  readonly composers: Composers;

  constructor(readonly me: { expiresAt?: number } = {}, storage = new StorageScope("own", new MemoryStorage())) {
    this.storage = storage;
    this.composers = new Composers(this as unknown as Session);
  }

  choose(model: string): void {
    this.chosen.push(model);
  }

  get asSession(): Session {
    return this as unknown as Session;
  }
}
