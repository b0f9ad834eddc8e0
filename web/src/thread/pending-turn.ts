/** A turn that is not in the history yet: queued, running, or about to be shown as committed; sent from here or
 * elsewhere. */

import { batch, signal, type Signal } from "@preact/signals";
import type { Failure, Item, TurnEvent } from "turnledger";

/** `sending`: no server has accepted it yet. `queued`: it waits for others. `ending`: it has ended, and its committed
 * turn is being read. */
export type PendingState = "sending" | "queued" | "running" | "stopping" | "ending";

/** A call whose arguments are streaming in. */
export interface OpenCall {
  readonly item: Item;
  readonly input: Signal<string>;
}

export class PendingTurn {
  /** The key of the request; of a turn sent elsewhere, its id. */
  readonly name: string;
  readonly isLocal: boolean;
  /** Empty until known. */
  readonly input: Signal<readonly Item[]>;
  /** The turn that it replaces; later turns are hidden while it runs. Null also while unknown. */
  readonly replaces: Signal<string | null>;
  readonly turnId = signal<string | null>(null);
  /** How many turns run or wait before it, as far as the server said: some may not be shown here. */
  readonly ahead = signal(0);
  /** Whether it was sent; until then it waits in this tab. */
  readonly isSent = signal(false);
  readonly state: Signal<PendingState>;
  /** The text since the last finished item, or a refusal. */
  readonly text = signal("");
  /** The reasoning since then, if the model reports any. */
  readonly reasoning = signal("");
  readonly calls = signal<readonly OpenCall[]>([]);
  readonly items = signal<readonly Item[]>([]);
  readonly startedAt = signal<number | null>(null);
  /** Whether the connection is lost. The turn continues, and is shown again after a reconnect. */
  readonly isOffline = signal(false);
  /** Whether it was restarted, and its earlier events are void. */
  readonly isRestarted = signal(false);
  /** Whether a change reported its end, so that it is read to its end even if hidden. */
  readonly isOver = signal(false);
  /** How many events it had, except its end. */
  readonly eventCount = signal(0);
  last = 0;
  /** The turn that the events belong to. */
  #eventsOf: string | null;

  constructor(options: {
    name: string;
    isLocal: boolean;
    input: readonly Item[];
    replaces?: string | null;
    turnId?: string | null;
    state?: PendingState;
    startedAt?: number | null;
  }) {
    this.name = options.name;
    this.isLocal = options.isLocal;
    this.input = signal(options.input);
    this.replaces = signal(options.replaces ?? null);
    this.turnId.value = this.#eventsOf = options.turnId ?? null;
    this.state = signal(options.state ?? "sending");
    this.startedAt.value = options.startedAt ?? null;
  }

  /** Whether any of its answer has arrived. */
  get hasBegun(): boolean {
    return [this.text, this.reasoning, this.items, this.calls].some(({ value }) => value.length > 0);
  }

  /** Set its turn; events of another one are void. */
  identify(turn: string): void {
    this.turnId.value = turn;
    if (this.#eventsOf === turn) return;
    if (this.last > 0) this.#forget();
    this.#eventsOf = turn;
  }

  /** Apply one event; a repeated one changes nothing. Returns the failure, if this event reports it. */
  apply(event: TurnEvent): Failure | null {
    // An end with its process does not mean that a server has it again.
    if (event.type !== "turn.finished") this.eventCount.value += 1;
    if (event.type === "turn.restarted") {
      this.turnId.value = this.#eventsOf = event.turn;
      this.#forget();
      return null;
    }
    if (event.number <= this.last) return null;
    this.last = event.number;
    this.isOffline.value = false;
    switch (event.type) {
      case "turn.started":
        if (this.state.peek() !== "stopping") this.state.value = "running";
        this.startedAt.value ??= Date.now();
        break;
      case "text.delta":
      case "refusal.delta":
        this.text.value += event.text;
        break;
      case "reasoning.delta":
        this.reasoning.value += event.text;
        break;
      case "item.added":
        this.calls.value = [...this.calls.peek(), { item: event.item, input: signal("") }];
        break;
      case "arguments.delta": {
        const call = this.calls.peek().find(({ item }) => item["call_id"] === event.call_id);
        if (call) call.input.value += event.text;
        break;
      }
      case "item.done":
        this.#finish(event.item);
        break;
      case "turn.resumed":
        this.#forgetOpen();
        break;
      case "turn.finished":
        this.state.value = "ending";
        return event.failure ?? null;
    }
    return null;
  }

  /** Show a finished item in place of what streamed in before it. */
  #finish(item: Item): void {
    batch(() => {
      if (item.type === "message") this.text.value = "";
      if (item.type === "reasoning") this.reasoning.value = "";
      const open = this.calls.peek();
      const left = open.filter((call) => call.item["call_id"] !== item["call_id"]);
      if (left.length < open.length) this.calls.value = left;
      this.items.value = [...this.items.peek(), item];
    });
  }

  #forgetOpen(): void {
    this.text.value = "";
    this.reasoning.value = "";
    this.calls.value = [];
  }

  #forget(): void {
    this.last = 0;
    this.#forgetOpen();
    this.items.value = [];
    this.isRestarted.value = true;
    if (this.state.peek() !== "stopping") this.state.value = "running";
  }
}
