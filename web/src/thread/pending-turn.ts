/** A turn that is not in the history yet: queued, running, or about to be shown as committed; sent from here or
 * elsewhere. */

import { signal, type Signal } from "@preact/signals";
import type { Failure, Item, TurnEvent } from "turnledger";

/** `sending`: no server has said yet that it has it. `queued`: it waits for others. `ending`: it has ended, and what is
 * in the history of it is on its way. */
export type PendingState = "sending" | "queued" | "running" | "stopping" | "ending";

export class PendingTurn {
  /** Of the request; where it was asked for elsewhere, of the turn. */
  readonly name: string;
  readonly isHere: boolean;
  /** Empty while nobody has told what was said. */
  readonly input: Signal<readonly Item[]>;
  /** The turn whose place it takes, and behind which nothing is shown meanwhile. */
  readonly replaces: string | null;
  readonly turnId = signal<string | null>(null);
  /** The turn that it is by all appearances, before the server has said so to who asked. */
  readonly guess = signal<string | null>(null);
  /** Whether it may as well be another one, so that nothing is to be done to it. */
  isDoubtful = false;
  /** Whether it was asked for: until then it waits in this tab. */
  readonly isAsked = signal(false);
  readonly state: Signal<PendingState>;
  /** What was said since the last finished item. */
  readonly text = signal("");
  /** What was thought since then, where a model tells. */
  readonly reasoning = signal("");
  readonly items = signal<readonly Item[]>([]);
  readonly startedAt = signal<number | null>(null);
  /** Whether the connection is lost: it goes on, and is shown on as soon as there is one. */
  readonly isDisconnected = signal(false);
  /** Whether what had been shown of it was void, and it began anew. */
  readonly isRestarted = signal(false);
  /** Whether somebody said that it has ended, so that it is worth to read to its end, though nobody looks. */
  readonly isOver = signal(false);
  /** How often something was heard of it, but for its end. */
  readonly eventCount = signal(0);
  /** The number of the last event that was heard. */
  last = 0;
  /** The turn whose events were heard. */
  #told: string | null;

  constructor(given: {
    name: string;
    isHere: boolean;
    input: readonly Item[];
    replaces?: string | null;
    turnId?: string | null;
    state?: PendingState;
    startedAt?: number | null;
  }) {
    this.name = given.name;
    this.isHere = given.isHere;
    this.input = signal(given.input);
    this.replaces = given.replaces ?? null;
    this.turnId.value = this.#told = given.turnId ?? null;
    this.state = signal(given.state ?? "sending");
    this.startedAt.value = given.startedAt ?? null;
  }

  /** It is this turn; what was told of another is void. */
  identify(turn: string): void {
    this.turnId.value = turn;
    if (this.#told === turn) return;
    if (this.last > 0) this.#forget();
    this.#told = turn;
  }

  /** Take in one event; one that was heard before changes nothing. Returns how it failed, if this tells so. */
  apply(event: TurnEvent): Failure | null {
    // That it ended with its process is no sign that a server has it again.
    if (event.type !== "turn.finished") this.eventCount.value += 1;
    if (event.type === "turn.restarted") {
      this.turnId.value = this.#told = event.turn;
      this.#forget();
      return null;
    }
    if (event.number <= this.last) return null;
    this.last = event.number;
    this.isDisconnected.value = false;
    switch (event.type) {
      case "turn.started":
        if (this.state.peek() !== "stopping") this.state.value = "running";
        this.startedAt.value ??= Date.now();
        break;
      case "text.delta":
        this.text.value += event.text;
        break;
      case "item.done":
        // The text of a message came before it, bit by bit.
        if (event.item.type === "message") this.text.value = "";
        this.items.value = [...this.items.peek(), event.item];
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
    this.reasoning.value = "";
    this.items.value = [];
    this.isRestarted.value = true;
    if (this.state.peek() !== "stopping") this.state.value = "running";
  }
}
