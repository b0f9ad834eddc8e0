/** What tabs of one browser tell one another of the turns that they asked for: no server tells what waits in line. */

import type { Item } from "turnledger";
import { channelOf } from "../browser/broadcast-channel";

export interface Telling {
  readonly chat: string;
  readonly turn: string;
  /** Of the request. */
  readonly name: string;
  readonly input: readonly Item[];
  readonly replaces: string | null;
}

type Said = ({ readonly kind: "asked" } & Telling) | { readonly kind: "who"; readonly chat: string };

/** Where there are no channels, nobody is told. */
export class Tellings {
  readonly #channel: BroadcastChannel | null;
  readonly #told = new Map<string, Telling>();
  readonly #heard: (telling: Telling) => void;
  readonly #known: (chat: string) => readonly Telling[];

  /** `heard`: told of each. `known`: what was asked for in this tab, and has not ended. */
  constructor(name: string, heard: (telling: Telling) => void, known: (chat: string) => readonly Telling[]) {
    this.#heard = heard;
    this.#known = known;
    this.#channel = channelOf(`turnledger turns ${name}`);
    this.#channel?.addEventListener("message", (event: MessageEvent<Said>) => this.#hear(event.data));
  }

  /** What was told of a turn. */
  of(turn: string): Telling | undefined {
    return this.#told.get(turn);
  }

  tell(telling: Telling): void {
    this.#channel?.postMessage({ kind: "asked", ...telling } satisfies Said);
  }

  /** Have the other tabs tell what they asked for in a chat. */
  ask(chat: string): void {
    this.#channel?.postMessage({ kind: "who", chat } satisfies Said);
  }

  close(): void {
    this.#channel?.close();
  }

  #hear(said: Said): void {
    if (said.kind === "who") {
      for (const telling of this.#known(said.chat)) this.tell(telling);
      return;
    }
    const { kind: _, ...telling } = said;
    this.#told.set(telling.turn, telling);
    if (this.#told.size > 100) this.#told.delete(this.#told.keys().next().value as string);
    this.#heard(telling);
  }
}
