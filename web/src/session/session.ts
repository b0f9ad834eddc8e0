/** Somebody who was let in: his client, his chats, and what is open. */

import { computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { Client, TurnledgerError, type Model, type Token } from "turnledger";
import { Outbox } from "turnledger/outbox";
import { ChatList } from "../chats/chat-list";
import { Composing } from "../composer/composers";
import { Live } from "../feed/change-feed";
import { Notices } from "./notices";
import { Place } from "./router";
import type { Realm } from "./storage-scope";
import { VisitorsLive } from "../feed/shared-chat-feed";
import type { ShownThread } from "../thread/thread";
import { Threads } from "../thread/threads";

/** Who somebody is, and what he may do. `keeps`: whether the server keeps his chats. */
export type Me = Partial<Token> & Pick<Token, "owner" | "scopes"> & { readonly keeps?: boolean };

/** What only who let him in can do for him. */
interface Ways {
  /** For what asks the server without the client. */
  apiKey(): string;
  signOut(): void;
}

/** Milliseconds before the models are asked for again. */
const PAUSE = 5_000;

const NO_WAYS: Ways = { apiKey: () => "", signOut: () => {} };

export class Session {
  readonly client: Client;
  readonly realm: Realm;
  readonly me: Me;
  readonly outbox: Outbox;
  readonly ways: Ways;
  readonly notices: Notices;
  readonly live: Pick<Live, "begin" | "connection" | "listen" | "close">;
  readonly chats: ChatList;
  readonly place: Place;
  readonly threads: Threads;
  readonly composing: Composing;
  readonly models: Signal<readonly Model[]> = signal([]);
  readonly #areModelsKnown = signal(false);
  /** The model that new turns are asked of; null: not known yet, or there is none. */
  readonly model: ReadonlySignal<string | null>;
  readonly #chosen: Signal<string | null>;

  /** `shutOut`: told when the server lets him in no more. */
  constructor(
    client: Client,
    outbox: Outbox,
    realm: Realm,
    me: Me,
    shutOut: (problem: unknown) => void,
    ways: Ways = NO_WAYS,
  ) {
    this.client = client;
    this.outbox = outbox;
    this.realm = realm;
    this.me = me;
    this.ways = ways;
    const refused = (problem: unknown): void => {
      if (isShutOut(problem)) shutOut(problem);
    };
    this.notices = new Notices(refused);
    // By the credential, too: whoever has another one in this realm hears nothing of it.
    const name = `${realm.name} ${me.id ?? me.owner}`;
    this.live = me.chat == null ? new Live(client, name, refused) : new VisitorsLive(client, me.chat, refused);
    this.chats = new ChatList(this);
    this.place = new Place(me.chat ?? null, this.keeps);
    this.threads = new Threads(this);
    effect(() => {
      this.threads.newChat.value = this.chats.scopes.newChat.value;
    });
    this.place.isHeld = () => isHeld(this.threads.current.peek());
    this.composing = new Composing(this);
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

  /** Whether he came by a link, and chats as nobody else. */
  get isGuest(): boolean {
    return this.me.share != null && !this.isReader;
  }

  /** Whether his chats are kept; if not, all of them are in the memory of this page only. */
  get keeps(): boolean {
    return this.me.keeps !== false && new URLSearchParams(location.search).get("keep") !== "no";
  }

  get mayRun(): boolean {
    return !this.isReader && this.#has("turns:run");
  }

  get mayWrite(): boolean {
    return !this.isReader && this.#has("chats:write");
  }

  /** Whether a server has said which models there are, be it none. */
  get areModelsKnown(): ReadonlySignal<boolean> {
    return this.#areModelsKnown;
  }

  choose(model: string): void {
    this.#chosen.value = model;
    this.realm.set("model", model);
  }

  /** End everything that is under way. Whatever comes late is shown nowhere, and leaves nothing. */
  close(): void {
    this.realm.close();
    this.composing.close();
    this.threads.close();
    this.place.close();
    this.chats.close();
    this.live.close();
  }

  /** The client says whether its requests find the server. */
  noteConnection(isLost: boolean): void {
    if (this.live instanceof Live) this.live.noteConnection(isLost);
  }

  #has(scope: "turns:run" | "chats:write"): boolean {
    return this.me.scopes.includes(scope);
  }

  async #askModels(): Promise<void> {
    while (!this.realm.isClosed && !this.#areModelsKnown.peek()) {
      try {
        this.models.value = await this.client.models();
        this.#areModelsKnown.value = true;
      } catch (problem) {
        // What is sent waits for them: who lost the server asks until it is back.
        const isLost = problem instanceof TurnledgerError && problem.isRetryable;
        if (!isLost) return void this.notices.problem(problem);
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    }
  }
}

/** Whether a token is good for nothing any more. */
export function isShutOut(problem: unknown): boolean {
  if (!(problem instanceof TurnledgerError)) return false;
  // Within a stream there is no status, but the word is the same.
  return problem.status === 401 || /^(token_revoked|token_expired|invalid_token|missing_token)$/.test(problem.code);
}

/** Whether something was said that would be lost by leaving it. */
function isHeld(thread: (Pick<ShownThread, "turns" | "running"> & { isKept?: boolean }) | null): boolean {
  if (!thread || thread.isKept !== false) return false;
  return thread.turns.peek().length > 0 || thread.running.peek().length > 0;
}
