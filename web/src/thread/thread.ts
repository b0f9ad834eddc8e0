/** A chat as views and the composer see it, kept by the server or not. */

import type { ReadonlySignal } from "@preact/signals";
import type { ChatInfo, Input, Item, OnBusy, OnStop, Turn } from "turnledger";
import type { PendingTurn } from "./pending-turn";

/** A turn that never happened: why, and what was said, so that it can be said again. */
export interface FailedTurn {
  /** Of the request, or of the attempt. */
  readonly name: string;
  /** What was said, as far as it is text. */
  readonly text: string;
  readonly input: readonly Item[];
  /** The turn in whose place it was asked for. */
  readonly replaces: string | null;
  /** The server's word, as `model_unavailable`; `turn_stopped` if somebody stopped it and nothing was kept. */
  readonly code: string;
  /** Why, as a sentence for people. */
  readonly message: string;
  /** What else the server said of it; null: nothing that helps. */
  readonly detail?: string | null;
  /** The attempt that failed, if the server has begun one. */
  readonly attempt?: string | null;
  /** Whether somebody has stopped it. */
  readonly isStopped: boolean;
  /** Whether it was asked for in this tab, since it was loaded: the composer takes its text back then. */
  readonly isHere: boolean;
}

export interface SendOptions {
  readonly model?: string | undefined;
  readonly instructions?: string | undefined;
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  /** While another turn runs; by default it waits in line. */
  readonly onBusy?: OnBusy | undefined;
  readonly idempotencyKey?: string | undefined;
}

/** The turns that were made in the place of one, and which of them is shown. */
export interface Siblings {
  /** The place of the shown one, from 0. */
  readonly at: number;
  /** The branch that shows each, the first made first. */
  readonly branches: readonly string[];
}

export type ExportFormat = "jsonl" | "markdown";

export interface Thread {
  /** Null until it is made. */
  readonly id: ReadonlySignal<string | null>;
  /** Null until it is known; of a chat that is not kept, always. */
  readonly info: ReadonlySignal<ChatInfo | null>;
  /** Whether a server keeps it. One that is not kept has no branches, forks, undo and export by the server. */
  readonly isKept: boolean;
  /** The last turns that it shows, the oldest of them first. */
  readonly turns: ReadonlySignal<readonly Turn[]>;
  readonly hasOlder: ReadonlySignal<boolean>;
  /** What is on its way, in the order in which it is to run. */
  readonly pending: ReadonlySignal<readonly PendingTurn[]>;
  /** What never happened, the last of it; null when it was asked for again, forgotten, or something came after it. */
  readonly failed: ReadonlySignal<FailedTurn | null>;
  /** Why it cannot be shown. */
  readonly problem: ReadonlySignal<unknown>;
  readonly isLoaded: ReadonlySignal<boolean>;

  /** The name under which a turn was shown while it ran: the same element goes on showing it. */
  nameOf(turn: Turn): string;

  /** Read some more turns, from before those that are there. */
  older(): Promise<void>;

  /** Ask for a turn. Resolves when it has ended, however it did: what became of it is shown. Never throws. */
  send(input: Input, options?: SendOptions): Promise<void>;
  /** Ask for a turn in the place of another, on a branch of its own. */
  edit(turn: Turn, input: Input, options?: SendOptions): Promise<void>;
  /** Ask the input of a turn once more. */
  regenerate(turn: Turn, options?: SendOptions): Promise<void>;
  /** Stop what runs, or this one; one that waits in line is withdrawn. */
  stop(options?: { which?: PendingTurn; policy?: OnStop }): Promise<void>;
  /** Ask again for what failed. */
  retry(options?: SendOptions): Promise<void>;
  /** Show the failure no more. */
  forgetFailure(): void;

  /** Null where there is nothing to choose from, or nobody knows yet: it is asked for when this is first read. */
  siblings(turn: Turn): ReadonlySignal<Siblings | null>;
  /** Show another branch; `from`: the number of the turn that is to stay in sight. */
  switch(branch: string, from?: number): Promise<void>;
  /** Take back the last turn. */
  undo(): Promise<void>;
  /** Make a chat that begins as this one does, up to a turn, and return its id. Null: that went wrong, and was told. */
  fork(at: Turn): Promise<string | null>;
  /** The whole chat as a file. */
  export(format: ExportFormat): Promise<Blob | null>;

  close(): void;
}
