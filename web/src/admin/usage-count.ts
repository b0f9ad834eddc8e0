/** Usage by owner and model, counted page by page while the user waits. */

import { signal, type ReadonlySignal } from "@preact/signals";
import type { ModelUsage } from "turnledger";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";

export type CountState = "none" | "counting" | "stopped" | "done";
export type Totals = Omit<ModelUsage, "owner" | "model">;

export class UsageCount {
  readonly #client: Session["client"];
  readonly #state = signal<CountState>("none");
  readonly #lines = signal<readonly ModelUsage[]>([]);
  readonly #total = signal<Totals>(NOTHING);
  readonly #problem = signal<string | null>(null);
  #ending = new AbortController();

  constructor({ client }: Pick<Session, "client">) {
    this.#client = client;
  }

  get state(): ReadonlySignal<CountState> {
    return this.#state;
  }

  /** By owner and model, most turns first. */
  get lines(): ReadonlySignal<readonly ModelUsage[]> {
    return this.#lines;
  }

  get total(): ReadonlySignal<Totals> {
    return this.#total;
  }

  get problem(): ReadonlySignal<string | null> {
    return this.#problem;
  }

  /** Count from the beginning, until all turns are counted or it is stopped. */
  async count(): Promise<void> {
    this.#ending.abort();
    const { signal: ending } = (this.#ending = new AbortController());
    this.#state.value = "counting";
    this.#problem.value = null;
    this.#lines.value = [];
    this.#total.value = NOTHING;
    const sums = new Map<string, ModelUsage>();
    try {
      for await (const page of this.#client.usage({ signal: ending }).pages()) {
        if (ending.aborted) return;
        for (const each of page.data) {
          const name = JSON.stringify([each.owner, each.model]);
          sums.set(name, { ...each, ...sum(each, sums.get(name) ?? NOTHING) });
        }
        this.#lines.value = [...sums.values()].sort((one, other) => other.turns - one.turns);
        this.#total.value = this.#lines.value.reduce(sum, NOTHING);
      }
      this.#state.value = "done";
    } catch (problem) {
      if (ending.aborted) return;
      this.#state.value = "stopped";
      this.#problem.value = errorText(problem);
    }
  }

  /** Stop, and keep what is counted. */
  stop(): void {
    this.#ending.abort();
    if (this.#state.peek() === "counting") this.#state.value = "stopped";
  }
}

const NOTHING: Totals = { turns: 0, inputTokens: 0, outputTokens: 0, bytes: 0 };

function sum(one: Totals, other: Totals): Totals {
  return {
    turns: one.turns + other.turns,
    inputTokens: one.inputTokens + other.inputTokens,
    outputTokens: one.outputTokens + other.outputTokens,
    bytes: one.bytes + other.bytes,
  };
}
