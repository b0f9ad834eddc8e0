/** What happens to the chats, as it happens: one stream for all tabs of a browser. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, type Change, type Client } from "turnledger";

export type Connection = "connecting" | "live" | "lost";
export type Listener = (change: Change) => void;

/** What tabs tell one another. */
type Told =
  | { readonly kind: "change"; readonly change: Change }
  | { readonly kind: "connection"; readonly connection: Connection }
  | { readonly kind: "who"; }
  | { readonly kind: "here"; readonly connection: Connection; readonly position: string | undefined };

/** Whoever holds the lock of its name reads the stream, and tells the others; whoever holds it next goes on behind the
 * last position that he heard. Where there are no locks or channels, each reads for himself. */
export class Live {
  readonly #listeners = new Set<Listener>();
  readonly #connection = signal<Connection>("connecting");
  readonly #ending = new AbortController();
  readonly #channel: BroadcastChannel | null;
  readonly #client: Client;
  #position: string | undefined;

  /** `name`: of the credential's realm. `refused`: told when the server lets one in no more. */
  constructor(client: Client, name: string, refused: (problem: unknown) => void = () => {}) {
    this.#client = client;
    const lock = `turnledger live ${name}`;
    const isShared = "locks" in navigator && "BroadcastChannel" in globalThis;
    this.#channel = isShared ? new BroadcastChannel(lock) : null;
    this.#channel?.addEventListener("message", (event: MessageEvent<Told>) => this.#hear(event.data));
    this.#tell({ kind: "who" });
    const { signal: ending } = this.#ending;
    const reading = isShared ? navigator.locks.request(lock, { signal: ending }, () => this.#read()) : this.#read();
    Promise.resolve(reading).catch((problem: unknown) => {
      if (!ending.aborted) refused(problem);
    });
  }

  /** Whether what is shown is how it is. */
  get connection(): ReadonlySignal<Connection> {
    return this.#connection;
  }

  /** Be told of each change, until what is returned is called. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#ending.abort();
    this.#listeners.clear();
    this.#channel?.close();
  }

  async #read(): Promise<void> {
    const { signal: ending } = this.#ending;
    while (!ending.aborted) {
      try {
        const after = this.#position === undefined ? {} : { after: this.#position };
        for await (const change of this.#client.events({ ...after, signal: ending })) {
          this.#set("live");
          this.#tell({ kind: "change", change });
          this.#pass(change);
        }
      } catch (problem) {
        if (ending.aborted) return;
        this.#set("lost");
        if (!(problem instanceof errors.ServerUnavailable)) throw problem;
      }
    }
  }

  #hear(told: Told): void {
    switch (told.kind) {
      case "change":
        this.#connection.value = "live";
        this.#pass(told.change);
        break;
      case "connection":
        this.#connection.value = told.connection;
        break;
      case "who":
        this.#tell({ kind: "here", connection: this.#connection.value, position: this.#position });
        break;
      case "here":
        if (this.#connection.value === "connecting") this.#connection.value = told.connection;
        this.#position ??= told.position;
        break;
    }
  }

  #pass(change: Change): void {
    this.#position = change.position;
    for (const listener of [...this.#listeners]) listener(change);
  }

  #set(connection: Connection): void {
    if (this.#connection.value === connection) return;
    this.#connection.value = connection;
    this.#tell({ kind: "connection", connection });
  }

  #tell(told: Told): void {
    if (!this.#ending.signal.aborted) this.#channel?.postMessage(told);
  }
}
