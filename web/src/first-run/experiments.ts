/** Three small experiments that show a new user what happens to a turn. */

import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import type { Model, Turn } from "turnledger";
import type { StorageScope } from "../session/storage-scope";
import { strings } from "../strings";

export type ExperimentName = "vanish" | "stop" | "tabs";
export const EXPERIMENTS: readonly ExperimentName[] = ["vanish", "stop", "tabs"];

/** The progress of an experiment. `missed`: it ended otherwise. `second`: this is the tab that was opened for it. */
export type ExperimentStep =
  | { readonly name: "vanish"; readonly at: "running" | "done" | "missed" }
  | { readonly name: "stop"; readonly at: "running" | "done" | "missed" | "early" }
  | { readonly name: "tabs"; readonly at: "greeting" | "ready" | "done" | "second" | "missed" };

export interface ExperimentThread {
  readonly id: ReadonlySignal<string | null>;
  readonly turns: ReadonlySignal<readonly Turn[]>;
  readonly pending: ReadonlySignal<readonly { readonly isLocal: boolean }[]>;
  readonly failed: ReadonlySignal<object | null>;
  send(text: string): Promise<void>;
}

export interface ExperimentContext {
  readonly storage: StorageScope;
  readonly models: ReadonlySignal<readonly Model[]>;
  readonly model: ReadonlySignal<string | null>;
  /** Whether the user has any chats; null if unknown. */
  readonly hasChats: ReadonlySignal<boolean | null>;
  /** Remove a text from the composer of a thread, if that has taken it back. */
  takeBack(thread: ExperimentThread, text: string): void;
}

function isDemo({ id, owned_by, ownedBy }: Model): boolean {
  return id === "demo" && (owned_by ?? ownedBy) === "turnledger";
}

export class Experiments {
  readonly #context: ExperimentContext;
  readonly #state = signal<string | null>(null);
  readonly #tried = signal<ReadonlySet<ExperimentName>>(new Set());
  readonly #step = signal<ExperimentStep | null>(null);
  readonly isOpen: ReadonlySignal<boolean>;
  #unwatch: () => void = () => {};

  /** `isFresh`: whether this tab was just opened for the experiment. */
  constructor(context: ExperimentContext, isFresh = history.length === 1) {
    this.#context = context;
    this.#state.value = context.storage.get("first-run");
    this.#tried.value = new Set(EXPERIMENTS.filter((each) => context.storage.get(`tried ${each}`) !== null));
    if (this.#state.value === "tabs" && isFresh) this.#step.value = { name: "tabs", at: "second" };
    if (this.#tried.value.size === EXPERIMENTS.length) this.#state.value = "closed";
    const usesDemo = computed(() =>
      context.models.value.some((each) => each.id === context.model.value && isDemo(each)),
    );
    this.isOpen = computed(() => {
      if (!usesDemo.value || this.#state.value === "closed") return false;
      return this.#state.value !== null || context.hasChats.value === false;
    });
  }

  get tried(): ReadonlySignal<ReadonlySet<ExperimentName>> {
    return this.#tried;
  }

  get step(): ReadonlySignal<ExperimentStep | null> {
    return this.#step;
  }

  async start(name: ExperimentName, thread: ExperimentThread): Promise<void> {
    this.#unwatch();
    this.#put(name);
    if (name === "vanish") await this.#vanish(thread);
    else if (name === "stop") await this.#stop(thread);
    else await this.#tabs(thread);
  }

  /** Close the experiments for good, for this credential. */
  close(): void {
    this.#unwatch();
    this.#put("closed");
    this.#step.value = null;
  }

  async #vanish(thread: ExperimentThread): Promise<void> {
    const running: ExperimentStep = (this.#step.value = { name: "vanish", at: "running" });
    const text = "/slow /fail after 5";
    await thread.send(text);
    // The words were the experiment's, not the user's.
    this.#context.takeBack(thread, text);
    this.#end(running, { name: "vanish", at: thread.failed.value === null ? "missed" : "done" });
  }

  async #stop(thread: ExperimentThread): Promise<void> {
    const running: ExperimentStep = (this.#step.value = { name: "stop", at: "running" });
    const text = `/slow ${strings.firstRun.stop.message}`;
    await thread.send(text);
    this.#context.takeBack(thread, text);
    const isKept = thread.turns.value.at(-1)?.kind === "interrupted";
    this.#end(running, { name: "stop", at: thread.failed.value !== null ? "early" : isKept ? "done" : "missed" });
  }

  async #tabs(thread: ExperimentThread): Promise<void> {
    if (thread.id.value === null) {
      const greeting: ExperimentStep = (this.#step.value = { name: "tabs", at: "greeting" });
      await thread.send(strings.firstRun.tabs.message);
      if (this.#step.value !== greeting) return;
      if (thread.id.value === null) return this.#end(greeting, { name: "tabs", at: "missed" });
    }
    const ready: ExperimentStep = (this.#step.value = { name: "tabs", at: "ready" });
    let [own, running] = [thread.turns.peek().length, 0];
    this.#unwatch = effect(() => {
      const pending = thread.pending.value;
      const local = pending.filter((each) => each.isLocal).length;
      own += Math.max(local - running, 0);
      running = local;
      // A short answer may be complete before this tab hears of it.
      if (local < pending.length || thread.turns.value.length > own) this.#end(ready, { name: "tabs", at: "done" });
    });
  }

  /** Move on from a step, unless another experiment was started meanwhile. */
  #end(from: ExperimentStep, to: ExperimentStep): void {
    if (this.#step.peek() !== from) return;
    this.#step.value = to;
    if (to.at !== "done") return;
    this.#context.storage.set(`tried ${to.name}`, "1");
    this.#tried.value = new Set([...this.#tried.peek(), to.name]);
  }

  #put(state: string): void {
    this.#state.value = state;
    this.#context.storage.set("first-run", state);
  }
}
