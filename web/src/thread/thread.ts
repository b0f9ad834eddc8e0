/** A chat as views and the composer see it, kept by the server or not. */

import type { ReadonlySignal } from "@preact/signals";
import type { ChatInfo, Input, Item, OnBusy, OnStop, Turn } from "turnledger";
import type { ChatSettings } from "../chats/chat-settings";
import type { PendingTurn } from "./pending-turn";

/** A failed turn: why, and its input, so that it can be sent again. */
export interface FailedTurn {
  /** The key of the request, or the id of the attempt. */
  readonly name: string;
  readonly text: string;
  readonly input: readonly Item[];
  /** The turn that it should have replaced. */
  readonly replaces: string | null;
  /** The error code, as `model_unavailable`; `turn_stopped` if a user stopped it and nothing was kept. */
  readonly code: string;
  readonly message: string;
  /** Details from the server; null if none help. */
  readonly detail?: string | null;
  /** The attempt that failed, if the server began one. */
  readonly attempt?: string | null;
  readonly isStopped: boolean;
  /** Whether this tab sent it since it was loaded: the composer then takes its text back. */
  readonly isLocal: boolean;
}

export interface SendOptions {
  readonly model?: string | undefined;
  readonly instructions?: string | undefined;
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  /** What to do while another turn runs; by default it waits. */
  readonly onBusy?: OnBusy | undefined;
  readonly idempotencyKey?: string | undefined;
}

/** Versions of a message or an answer, and which of them is shown. */
export interface Versions {
  readonly at: number;
  /** The branch of each, oldest first. */
  readonly branches: readonly string[];
}

/** The siblings of a turn: those with another message, and those with another answer to the same message. Null: there
 * are none. */
export interface Siblings {
  readonly message: Versions | null;
  readonly answer: Versions | null;
}

export type ExportFormat = "jsonl" | "markdown";

export interface Thread {
  /** Null until the chat exists. */
  readonly id: ReadonlySignal<string | null>;
  /** Null until known, and always for a chat that is not kept. */
  readonly info: ReadonlySignal<ChatInfo | null>;
  /** Whether a server keeps it. One that is not kept has no branches, forks, undo or export. */
  readonly isKept: boolean;
  /** The last turns of its branch, oldest first. */
  readonly turns: ReadonlySignal<readonly Turn[]>;
  readonly hasOlder: ReadonlySignal<boolean>;
  /** Whether later turns were not read yet: a visitor reads from the beginning. */
  readonly hasNewer: ReadonlySignal<boolean>;
  /** The pending turns, in the order in which they run. */
  readonly pending: ReadonlySignal<readonly PendingTurn[]>;
  /** The last failure; null once it was retried, dismissed, or followed by another turn. */
  readonly failed: ReadonlySignal<FailedTurn | null>;
  /** Why the chat cannot be shown. */
  readonly problem: ReadonlySignal<unknown>;
  readonly isLoaded: ReadonlySignal<boolean>;
  /** Instructions and parameters of its turns. */
  readonly settings: ReadonlySignal<ChatSettings>;

  /** The name of a turn while it was pending: the same element keeps showing it. */
  nameOf(turn: Turn): string;

  older(): Promise<void>;
  newer(): Promise<void>;
  /** Read the last turns, whatever lies between. */
  latest(): Promise<void>;

  /** Send a message. Resolves when its turn has ended, however it did. Never throws. */
  send(input: Input, options?: SendOptions): Promise<void>;
  /** Replace a turn, on a new branch. */
  edit(turn: Turn, input: Input, options?: SendOptions): Promise<void>;
  /** Answer the input of a turn again. */
  regenerate(turn: Turn, options?: SendOptions): Promise<void>;
  /** Stop the running turn, or this one; a queued one is withdrawn. */
  stop(options?: { which?: PendingTurn; policy?: OnStop }): Promise<void>;
  retry(options?: SendOptions): Promise<void>;
  forgetFailure(): void;

  /** Null if there are none, or if not known yet: the first read requests them. */
  siblings(turn: Turn): ReadonlySignal<Siblings | null>;
  /** Show another branch; `from`: the number of the turn that stays visible. */
  switch(branch: string, from?: number): Promise<void>;
  undo(): Promise<void>;
  /** Whether models of later turns receive this turn, or one item of it. A failure is reported. */
  showToModel(turn: Turn, isShown: boolean, place?: number): Promise<void>;
  /** Fork a chat up to a turn, and return the id of the new one; null if that failed, which is reported. */
  fork(at: Turn): Promise<string | null>;
  export(format: ExportFormat): Promise<Blob | null>;
  /** Change the settings from the next turn on; throws what the server refuses. */
  changeSettings(settings: ChatSettings): Promise<void>;

  close(): void;
}
