/** Somebody who was let in: his client, his chats, and what is open. */

import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { Client, type Model, type Token } from "turnledger";
import { Outbox } from "turnledger/outbox";
import { ChatList } from "../chats/chat-list";
import { Live } from "../live/live";
import { Notices } from "./notices";
import { Place } from "./place";
import type { Realm } from "./realm";
import { Threads } from "../thread/threads";

/** Who somebody is, and what he may do. */
export type Me = Partial<Token> & Pick<Token, "owner" | "scopes"> & { readonly keeps?: boolean };

export class Session {
  readonly client: Client;
  readonly realm: Realm;
  readonly me: Me;
  readonly outbox: Outbox;
  readonly notices = new Notices();
  readonly live: Live;
  readonly chats: ChatList;
  readonly place: Place;
  readonly threads: Threads;
  readonly models: Signal<readonly Model[]> = signal([]);
  /** The model that new turns are asked of; null: not known yet, or there is none. */
  readonly model: ReadonlySignal<string | null>;
  readonly #chosen: Signal<string | null>;

  /** `refused`: told when the server lets him in no more. */
  constructor(client: Client, outbox: Outbox, realm: Realm, me: Me, refused: (problem: unknown) => void) {
    this.client = client;
    this.outbox = outbox;
    this.realm = realm;
    this.me = me;
    // By the credential, too: whoever has another one in this realm hears nothing of it.
    this.live = new Live(client, `${realm.name} ${me.id ?? me.owner}`, refused);
    this.chats = new ChatList(this);
    this.place = new Place(me.chat ?? null);
    this.threads = new Threads(this);
    this.#chosen = signal(realm.get("model"));
    this.model = computed(() => {
      const names = this.models.value.map(({ id }) => id);
      const chosen = this.#chosen.value;
      return chosen !== null && names.includes(chosen) ? chosen : (names[0] ?? null);
    });
    if (this.mayRun) void this.#askModels();
  }

  /** Whether he came by a link to one chat, to read it. */
  get isReader(): boolean {
    return this.me.chat != null;
  }

  get mayRun(): boolean {
    return !this.isReader && this.#has("turns:run");
  }

  get mayWrite(): boolean {
    return !this.isReader && this.#has("chats:write");
  }

  choose(model: string): void {
    this.#chosen.value = model;
    this.realm.set("model", model);
  }

  close(): void {
    this.threads.close();
    this.place.close();
    this.chats.close();
    this.live.close();
  }

  #has(scope: "turns:run" | "chats:write"): boolean {
    return this.me.scopes.includes(scope);
  }

  async #askModels(): Promise<void> {
    try {
      this.models.value = await this.client.models();
    } catch (problem) {
      this.notices.problem(problem);
    }
  }
}
