/** How somebody comes in: with a link's code, with a token from before, with none where none is needed. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { Client, errors } from "turnledger";
import { Outbox } from "turnledger/outbox";
import { wordsOfProblem } from "./notices";
import { Realm } from "./realm";
import { Session } from "./session";

export type Arrival =
  | { readonly kind: "arriving" }
  | { readonly kind: "in"; readonly session: Session }
  /** A token is asked for. */
  | { readonly kind: "out"; readonly why: string | null }
  | { readonly kind: "refused"; readonly why: string };

export class Arriving {
  readonly #arrival = signal<Arrival>({ kind: "arriving" });

  get arrival(): ReadonlySignal<Arrival> {
    return this.#arrival;
  }

  /** Come in, with the token that is kept, or without. */
  async arrive(realm = new Realm("own")): Promise<void> {
    const outbox = new Outbox(realm.storage, realm.sender);
    const client = new Client(location.origin, { apiKey: () => realm.get("token") ?? "", outbox });
    try {
      const me = await client.tokens.own();
      const session = new Session(client, outbox, realm, me, (problem) => this.#leave(session, problem));
      this.#arrival.value = { kind: "in", session };
    } catch (problem) {
      const isToken = problem instanceof errors.NotAdmitted;
      this.#arrival.value = { kind: isToken ? "out" : "refused", why: wordsOfProblem(problem) };
    }
  }

  #leave(session: Session, problem: unknown): void {
    session.close();
    this.#arrival.value = { kind: "out", why: wordsOfProblem(problem) };
  }
}
