/** A turn on its way: asked for here or elsewhere, queued, running, or about to be shown as committed. */

import { signal, type Signal } from "@preact/signals";
import type { Failure, Item, TurnEvent } from "turnledger";

/** `sending`: no server has said yet that it has it. `queued`: it waits for others. `ending`: it has ended, and what is
 * in the history of it is on its way. */
export type RunningState = "sending" | "queued" | "running" | "stopping" | "ending";

export class Running {
  /** Of the request; where it was asked for elsewhere, of the turn. */
  readonly name: string;
  readonly isHere: boolean;
  readonly input: Signal<readonly Item[]>;
  /** The turn whose place it takes, and behind which nothing is shown meanwhile. */
  readonly replaces: string | null;
  readonly turnId = signal<string | null>(null);
  readonly state: Signal<RunningState>;
  /** What was said since the last finished item. */
  readonly text = signal("");
  readonly items = signal<readonly Item[]>([]);
  readonly startedAt = signal<number | null>(null);
  /** The number of the last event that was heard. */
  last = 0;

  constructor(given: {
    name: string;
    isHere: boolean;
    input: readonly Item[];
    replaces?: string | null;
    turnId?: string;
    state?: RunningState;
  }) {
    this.name = given.name;
    this.isHere = given.isHere;
    this.input = signal(given.input);
    this.replaces = given.replaces ?? null;
    this.turnId.value = given.turnId ?? null;
    this.state = signal(given.state ?? "sending");
  }

  /** Take in one event. Returns how it failed, if this is the event that tells so. */
  hear(event: TurnEvent): Failure | null {
    if (event.type === "turn.restarted") {
      this.turnId.value = event.turn;
      this.#forget();
      return null;
    }
    this.last = event.number;
    switch (event.type) {
      case "turn.started":
        this.state.value = "running";
        this.startedAt.value ??= Date.now();
        break;
      case "text.delta":
        this.text.value += event.text;
        break;
      case "item.done":
        // The text of a message came before it, bit by bit.
        if (event.item.type === "message") this.text.value = "";
        this.items.value = [...this.items.value, event.item];
        break;
      case "turn.finished":
        this.state.value = "ending";
        return event.failure ?? null;
    }
    return null;
  }

  #forget(): void {
    this.last = 0;
    this.text.value = "";
    this.items.value = [];
    this.state.value = "running";
  }
}
