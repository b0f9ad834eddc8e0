/** A chat, and somebody who writes in it, without a server. */

import { signal } from "@preact/signals";
import type { Change, Item, Model, Turn } from "turnledger";
import { Composing } from "../../src/composer/composers";
import { Memory, Realm } from "../../src/session/storage-scope";
import type { Session } from "../../src/session/session";
import { Running } from "../../src/thread/pending-turn";
import type { Failed, SendOptions, ShownThread } from "../../src/thread/thread";

export function said(text: string): Item[] {
  return [{ type: "message", role: "user", content: [{ type: "input_text", text }] }];
}

export function turnOf(text: string, details: Record<string, unknown> = {}): Turn {
  return { input: said(text), output: [], details } as unknown as Turn;
}

export function runningOf(text: string): Running {
  return new Running({ name: text, isHere: true, input: said(text), state: "running" });
}

export function failedOf(text: string, more: Partial<Failed> = {}): Failed {
  const facts = { name: "a", input: said(text), replaces: null, code: "model_error", message: "No." };
  return { ...facts, text, isStopped: false, isHere: true, ...more };
}

/** What is sent there is written down in `sent`. */
export class MadeUpThread {
  readonly id = signal<string | null>(null);
  readonly turns = signal<readonly Turn[]>([]);
  readonly running = signal<readonly Running[]>([]);
  readonly failed = signal<Failed | null>(null);
  readonly problem = signal<unknown>(null);
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

  get shown(): ShownThread {
    return this as unknown as ShownThread;
  }
}

export class MadeUpSession {
  readonly models = signal<readonly Model[]>([{ id: "one" }, { id: "two" }]);
  readonly areModelsKnown = signal(true);
  readonly model = signal<string | null>("one");
  readonly realm: Realm;
  readonly chosen: string[] = [];
  readonly listeners: ((change: Change) => void)[] = [];
  readonly live = { listen: (listener: (change: Change) => void) => (this.listeners.push(listener), () => {}) };
  readonly composing: Composing;
  mayRun = true;

  constructor(readonly me: { expiresAt?: number } = {}, realm = new Realm("own", new Memory())) {
    this.realm = realm;
    this.composing = new Composing(this as unknown as Session);
  }

  choose(model: string): void {
    this.chosen.push(model);
  }

  get asSession(): Session {
    return this as unknown as Session;
  }
}
