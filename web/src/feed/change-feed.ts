/** The feed of changes to chats: one stream for all tabs of a browser. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type Client } from "turnledger";
import { FeedCursor, type FeedPosition, type NumberedChange } from "./feed-cursor";
import { LeaderElection } from "./leader-election";

export type ConnectionState = "connecting" | "live" | "lost";
export type ChangeListener = (change: Change) => void;

type FeedMessage =
  | ({ readonly kind: "change" } & NumberedChange)
  /** A tab requests the current position, and sends its own. */
  | { readonly kind: "query"; readonly epoch: string | null; readonly number: number }
  /** The leader answers, after the changes that the other tab is missing. */
  | { readonly kind: "state"; readonly connection: ConnectionState; readonly position: FeedPosition | null };

/** Milliseconds between two checks that there is a leader. */
const WATCH_INTERVAL = 4_000;
/** Unanswered queries after which this tab takes the lead. */
const MAX_UNANSWERED = 2;
/** Milliseconds before a refused stream is requested again. */
const RETRY_PAUSE = 5_000;
/** Milliseconds within which a restarted server is back. */
export const LOSS_DELAY = 1_000;

/** The leader reads the stream and passes it on to the other tabs; the next leader continues after the last change that
 * it received. Without locks or channels, each tab reads for itself while it is visible. */
export class ChangeFeed {
  readonly #listeners = new Set<ChangeListener>();
  readonly #connection = signal<ConnectionState>("connecting");
  readonly #client: Client;
  readonly #name: string;
  readonly #onRefused: (problem: unknown) => void;
  readonly #cursor = new FeedCursor(Date.now());
  readonly #election: LeaderElection;
  readonly #ending = new AbortController();
  #channel: BroadcastChannel | null = null;
  #ownRead: AbortController | null = null;
  #isRefused = false;
  #unanswered = 0;
  #lossTimer: ReturnType<typeof setTimeout> | undefined;
  #asOf: Omit<FeedPosition, "number"> | null = null;
  /** Resolves when the position to read from is known. */
  readonly #started: Promise<void>;
  #start: () => void = () => {};

  /** `name`: of the storage scope and the credential; tabs with the same name share a stream. `onRefused`: called when
   * the server revokes access. Reading begins with `start`. */
  constructor(client: Client, name: string, onRefused: (problem: unknown) => void = () => {}) {
    this.#client = client;
    this.#name = `turnledger live ${name}`;
    this.#onRefused = onRefused;
    this.#started = new Promise((resolve) => (this.#start = resolve));
    this.#election = new LeaderElection(this.#name, (ending) => this.#read(ending));
    const { signal: ending } = this.#ending;
    addEventListener("pagehide", () => this.#leave(), { signal: ending });
    addEventListener("pageshow", (event) => event.persisted && this.#join(), { signal: ending });
    document.addEventListener("visibilitychange", () => this.#visibilityChanged(), { signal: ending });
    document.addEventListener("resume", () => this.#postQuery(), { signal: ending });
    const watching = setInterval(() => this.#watch(), WATCH_INTERVAL);
    ending.addEventListener("abort", () => clearInterval(watching));
    this.#join();
  }

  /** Whether the page shows the current state. */
  get connection(): ReadonlySignal<ConnectionState> {
    return this.#connection;
  }

  /** Call the listener for each change, until the returned function is called. The first tab that reads the stream
   * emits `start`. */
  listen(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Emit every change after the list of chats with this `asOf`, whichever tab reads it. Without it, the feed begins
   * with the stream: read the chats again on `start`. */
  start(asOf?: string): void {
    if (asOf !== undefined) this.#asOf ??= { epoch: freshEpoch(), position: asOf };
    this.#start();
  }

  /** The client reports whether its requests reach the server. An outage shorter than a moment is not shown. */
  noteConnection(isLost: boolean): void {
    clearTimeout(this.#lossTimer);
    if (!isLost) this.#set("live");
    else this.#lossTimer = setTimeout(() => this.#set("lost"), LOSS_DELAY);
  }

  close(): void {
    this.#ending.abort();
    clearTimeout(this.#lossTimer);
    this.#listeners.clear();
    this.#leave();
  }

  #join(): void {
    if (this.#ending.signal.aborted || this.#channel !== null || this.#ownRead !== null) return;
    try {
      if (!("locks" in navigator)) throw new Error("Pages of this address have no locks.");
      this.#channel = new BroadcastChannel(this.#name);
    } catch {
      this.#visibilityChanged();
      return;
    }
    this.#channel.addEventListener("message", (event: MessageEvent<FeedMessage>) => this.#receive(event.data));
    this.#postQuery();
    this.#runForLeader(false);
  }

  #runForLeader(steals: boolean): void {
    this.#election.join(steals).catch(() => {
      this.#channel?.close(); // a frame may have channels, and be denied locks
      this.#channel = null;
      this.#visibilityChanged();
    });
  }

  #leave(): void {
    this.#election.leave();
    this.#ownRead?.abort();
    this.#ownRead = null;
    this.#channel?.close();
    this.#channel = null;
  }

  #visibilityChanged(): void {
    const isVisible = document.visibilityState !== "hidden";
    if (this.#channel !== null) {
      if (isVisible) this.#postQuery();
    } else if (!isVisible) {
      this.#ownRead?.abort(); // a hidden tab holds none of the few connections that all tabs share
      this.#ownRead = null;
    } else if (this.#ownRead === null && !this.#isRefused && !this.#ending.signal.aborted) {
      this.#ownRead = new AbortController();
      void this.#read(this.#ownRead.signal);
    }
  }

  #watch(): void {
    const isOver = this.#channel === null || this.#isRefused;
    if (isOver || this.#election.isLeader || document.visibilityState === "hidden") {
      this.#unanswered = 0;
    } else if (this.#unanswered < MAX_UNANSWERED) {
      this.#unanswered += 1;
      this.#postQuery();
    } else {
      this.#unanswered = 0;
      this.#runForLeader(true);
    }
  }

  async #read(ending: AbortSignal): Promise<void> {
    await Promise.race([this.#started, new Promise((resolve) => ending.addEventListener("abort", resolve))]);
    while (!ending.aborted) {
      try {
        await this.#follow(ending);
      } catch (problem) {
        if (ending.aborted) return;
        if (problem instanceof errors.NotAdmitted) {
          this.#isRefused = true;
          return this.#onRefused(problem);
        }
        this.#set("lost");
        await pause(RETRY_PAUSE, ending);
      }
    }
  }

  /** Read on, and pass each change to all tabs. */
  async #follow(ending: AbortSignal): Promise<void> {
    let from = this.#cursor.position;
    if (from === null && this.#asOf !== null) from = this.#startAt(this.#asOf);
    if (from !== null && this.#connection.value === "connecting") this.#set("live");
    const after = from === null ? {} : { after: from.position };
    for await (const change of this.#client.events({ ...after, signal: ending })) {
      if (ending.aborted) return;
      this.#set("live");
      if (change.type === "start") {
        from = this.#startAt({ epoch: freshEpoch(), position: change.position });
        continue;
      }
      if (from === null || change.type === "gap") from = { epoch: freshEpoch(), number: 0, position: change.position };
      from = { ...from, number: from.number + 1 };
      const message = { kind: "change", epoch: from.epoch, number: from.number, change } as const;
      this.#post(message);
      this.#take(message);
    }
  }

  #startAt({ epoch, position }: Omit<FeedPosition, "number">): FeedPosition {
    const start = this.#cursor.begin(epoch, position);
    this.#emit({ type: "start", position, at: Date.now() });
    this.#postState();
    return start;
  }

  #receive(message: FeedMessage): void {
    switch (message.kind) {
      case "change":
        this.#unanswered = 0;
        this.#connection.value = "live";
        this.#take(message);
        break;
      case "query":
        if (!this.#election.isLeader) break;
        for (const each of this.#cursor.after(message.epoch, message.number)) this.#post({ kind: "change", ...each });
        this.#postState();
        break;
      case "state": {
        this.#unanswered = 0;
        this.#connection.value = message.connection;
        const gap = message.position && this.#cursor.compare(message.position);
        if (message.position) this.#start();
        if (gap) this.#emit(gap);
        break;
      }
    }
  }

  #take({ epoch, number, change }: NumberedChange): void {
    const changes = this.#cursor.accept({ epoch, number, change });
    this.#start();
    if (changes === null) this.#postQuery();
    else changes.forEach((each) => this.#emit(each));
  }

  #emit(change: Change): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(change);
      } catch (problem) {
        reportError(problem); // other listeners still receive it
      }
    }
  }

  #set(connection: ConnectionState): void {
    if (this.#connection.value === connection) return;
    this.#connection.value = connection;
    if (this.#election.isLeader) this.#postState();
  }

  #postQuery(): void {
    const current = this.#cursor.position;
    this.#post({ kind: "query", epoch: current?.epoch.name ?? null, number: current?.number ?? 0 });
  }

  #postState(): void {
    this.#post({ kind: "state", connection: this.#connection.value, position: this.#cursor.position });
  }

  #post(message: FeedMessage): void {
    this.#channel?.postMessage(message);
  }
}

function freshEpoch(): FeedPosition["epoch"] {
  // Not a UUID: pages over plain http cannot create one.
  return { name: Math.random().toString(36).slice(2), since: Date.now() };
}

export function pause(milliseconds: number, ending: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    ending.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
