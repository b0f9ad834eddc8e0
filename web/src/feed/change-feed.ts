/** What happens to the chats, as it happens: one stream for all tabs of a browser. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type Client } from "turnledger";
import { Hearing, type Heard, type Numbered } from "./feed-cursor";
import { Leading } from "./leader-election";

export type Connection = "connecting" | "live" | "lost";
export type Listener = (change: Change) => void;

/** What tabs tell one another. */
type Told =
  | ({ readonly kind: "change" } & Numbered)
  /** Asked by who wants to know how far it is, and says what he has heard. */
  | { readonly kind: "who"; readonly epoch: string | null; readonly number: number }
  /** Answered by who leads, behind everything that the one who asked is missing. */
  | { readonly kind: "here"; readonly connection: Connection; readonly heard: Heard | null };

/** Milliseconds between two looks whether somebody leads. */
const WATCH = 4_000;
/** So many questions that nobody answered, and the lead is taken. */
const UNANSWERED = 2;
/** Milliseconds after which a stream that the server refused is asked for again. */
const AGAIN = 5_000;
/** Milliseconds in which a restarted server is back. */
const MOMENT = 1_000;

/** Who leads reads the stream and tells the others; who leads next goes on behind the last change that he heard.
 * Where there are no locks or channels, each tab reads for itself, while it is seen. */
export class Live {
  readonly #listeners = new Set<Listener>();
  readonly #connection = signal<Connection>("connecting");
  readonly #client: Client;
  readonly #name: string;
  readonly #refused: (problem: unknown) => void;
  readonly #hearing = new Hearing(Date.now());
  readonly #leading: Leading;
  readonly #ending = new AbortController();
  #channel: BroadcastChannel | null = null;
  #alone: AbortController | null = null;
  #isRefused = false;
  #unanswered = 0;
  #losing: ReturnType<typeof setTimeout> | undefined;
  #asOf: Omit<Heard, "number"> | null = null;
  /** Resolved when it is known behind what to read. */
  readonly #begun: Promise<void>;
  #begin: () => void = () => {};

  /** `name`: of the credential's realm; tabs of the same name share a stream. `refused`: told when the server lets one
   * in no more. Nothing is read before `begin`. */
  constructor(client: Client, name: string, refused: (problem: unknown) => void = () => {}) {
    this.#client = client;
    this.#name = `turnledger live ${name}`;
    this.#refused = refused;
    this.#begun = new Promise((resolve) => (this.#begin = resolve));
    this.#leading = new Leading(this.#name, (ending) => this.#read(ending));
    const { signal: ending } = this.#ending;
    addEventListener("pagehide", () => this.#leave(), { signal: ending });
    addEventListener("pageshow", (event) => event.persisted && this.#join(), { signal: ending });
    document.addEventListener("visibilitychange", () => this.#seen(), { signal: ending });
    document.addEventListener("resume", () => this.#ask(), { signal: ending });
    const watching = setInterval(() => this.#watch(), WATCH);
    ending.addEventListener("abort", () => clearInterval(watching));
    this.#join();
  }

  /** Whether what is shown is how it is. */
  get connection(): ReadonlySignal<Connection> {
    return this.#connection;
  }

  /** Be told of each change, until what is returned is called. `start` is told by the tab that reads
   * first, when it begins. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Everything that came behind the list of chats with this `asOf` shall be told, in whichever tab. Without one, it
   * begins with the stream: ask for the chats once more when `start` is told. */
  begin(asOf?: string): void {
    if (asOf !== undefined) this.#asOf ??= { epoch: freshEpoch(), position: asOf };
    this.#begin();
  }

  /** The client says whether its requests find the server. One that is back in a moment was not away. */
  noteConnection(isLost: boolean): void {
    clearTimeout(this.#losing);
    if (!isLost) this.#set("live");
    else this.#losing = setTimeout(() => this.#set("lost"), MOMENT);
  }

  close(): void {
    this.#ending.abort();
    clearTimeout(this.#losing);
    this.#listeners.clear();
    this.#leave();
  }

  // Who reads.

  #join(): void {
    if (this.#ending.signal.aborted || this.#channel !== null || this.#alone !== null) return;
    try {
      if (!("locks" in navigator)) throw new Error("Pages of this address have no locks.");
      this.#channel = new BroadcastChannel(this.#name);
    } catch {
      this.#seen();
      return;
    }
    this.#channel.addEventListener("message", (event: MessageEvent<Told>) => this.#hear(event.data));
    this.#ask();
    this.#stand(false);
  }

  #stand(takes: boolean): void {
    this.#leading.stand(takes).catch(() => {
      this.#channel?.close(); // a frame may have channels, and be denied locks
      this.#channel = null;
      this.#seen();
    });
  }

  #leave(): void {
    this.#leading.leave();
    this.#alone?.abort();
    this.#alone = null;
    this.#channel?.close();
    this.#channel = null;
  }

  /** The tab is looked at, or is not any more. */
  #seen(): void {
    const isSeen = document.visibilityState !== "hidden";
    if (this.#channel !== null) {
      if (isSeen) this.#ask();
    } else if (!isSeen) {
      this.#alone?.abort(); // of the few connections that all tabs have, it holds none
      this.#alone = null;
    } else if (this.#alone === null && !this.#isRefused && !this.#ending.signal.aborted) {
      this.#alone = new AbortController();
      void this.#read(this.#alone.signal);
    }
  }

  #watch(): void {
    const isOver = this.#channel === null || this.#isRefused;
    if (isOver || this.#leading.isLeading || document.visibilityState === "hidden") {
      this.#unanswered = 0;
    } else if (this.#unanswered < UNANSWERED) {
      this.#unanswered += 1;
      this.#ask();
    } else {
      this.#unanswered = 0;
      this.#stand(true);
    }
  }

  async #read(ending: AbortSignal): Promise<void> {
    await Promise.race([this.#begun, new Promise((resolve) => ending.addEventListener("abort", resolve))]);
    while (!ending.aborted) {
      try {
        await this.#follow(ending);
      } catch (problem) {
        if (ending.aborted) return;
        if (problem instanceof errors.NotAdmitted) {
          this.#isRefused = true;
          return this.#refused(problem);
        }
        this.#set("lost");
        await pause(AGAIN, ending);
      }
    }
  }

  /** Read on, and tell everybody. */
  async #follow(ending: AbortSignal): Promise<void> {
    let from = this.#hearing.heard;
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
      const told = { kind: "change", epoch: from.epoch, number: from.number, change } as const;
      this.#tell(told);
      this.#take(told);
    }
  }

  #startAt({ epoch, position }: Omit<Heard, "number">): Heard {
    const heard = this.#hearing.begin(epoch, position);
    this.#pass({ type: "start", position, at: Date.now() });
    this.#say();
    return heard;
  }

  // What is told.

  #hear(told: Told): void {
    switch (told.kind) {
      case "change":
        this.#unanswered = 0;
        this.#connection.value = "live";
        this.#take(told);
        break;
      case "who":
        if (!this.#leading.isLeading) break;
        for (const each of this.#hearing.after(told.epoch, told.number)) this.#tell({ kind: "change", ...each });
        this.#say();
        break;
      case "here": {
        this.#unanswered = 0;
        this.#connection.value = told.connection;
        const gap = told.heard && this.#hearing.compare(told.heard);
        if (told.heard) this.#begin();
        if (gap) this.#pass(gap);
        break;
      }
    }
  }

  #take({ epoch, number, change }: Numbered): void {
    const changes = this.#hearing.take({ epoch, number, change });
    this.#begin();
    if (changes === null) this.#ask();
    else changes.forEach((each) => this.#pass(each));
  }

  #pass(change: Change): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(change);
      } catch (problem) {
        reportError(problem); // the others are told all the same
      }
    }
  }

  #set(connection: Connection): void {
    if (this.#connection.value === connection) return;
    this.#connection.value = connection;
    if (this.#leading.isLeading) this.#say();
  }

  #ask(): void {
    const heard = this.#hearing.heard;
    this.#tell({ kind: "who", epoch: heard?.epoch.name ?? null, number: heard?.number ?? 0 });
  }

  #say(): void {
    this.#tell({ kind: "here", connection: this.#connection.value, heard: this.#hearing.heard });
  }

  #tell(told: Told): void {
    this.#channel?.postMessage(told);
  }
}

function freshEpoch(): Heard["epoch"] {
  // Not a UUID: pages of plain http addresses may make none.
  return { name: Math.random().toString(36).slice(2), since: Date.now() };
}

function pause(milliseconds: number, ending: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    ending.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
