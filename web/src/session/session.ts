/** A signed-in user: the client, the chats, and the open threads. */

import { computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { Client, TurnledgerError, type Model, type Token, type TokenScope } from "turnledger";
import { Outbox } from "turnledger/outbox";
import { AllChats } from "../chats/all-chats";
import { ChatList } from "../chats/chat-list";
import type { ChatRow } from "../chats/chat-row";
import { Composers } from "../composer/composers";
import { ShortcutSettings } from "../composer/shortcuts";
import { ChangeFeed } from "../feed/change-feed";
import { Notices } from "./notices";
import { Router } from "./router";
import type { StorageScope } from "./storage-scope";
import { SharedChatFeed } from "../feed/shared-chat-feed";
import type { Thread } from "../thread/thread";
import { Threads } from "../thread/threads";

/** The caller and its permissions. `keeps`: whether the server keeps its chats. */
export type Me = Partial<Token> & Pick<Token, "owner" | "scopes"> & { readonly keeps?: boolean };

/** What the sign-in flow provides to the session. */
interface SessionControls {
  /** For requests that bypass the client. */
  apiKey(): string;
  signOut(): void;
}

/** A modal dialog; each time it is opened, another object. */
export type OpenDialog =
  | { readonly kind: "share" | "tags"; readonly row: ChatRow }
  | { readonly kind: "chat settings"; readonly thread: Thread }
  | { readonly kind: "settings" }
  | { readonly kind: "admin" };

/** Where a browser keeps the chat that it showed last. */
const LAST_CHAT = "last chat";
/** Milliseconds before the models are requested again. */
const RETRY_PAUSE = 5_000;

const NO_CONTROLS: SessionControls = { apiKey: () => "", signOut: () => {} };

export class Session {
  readonly client: Client;
  readonly storage: StorageScope;
  readonly me: Me;
  readonly outbox: Outbox;
  readonly controls: SessionControls;
  readonly notices: Notices;
  readonly feed: Pick<ChangeFeed, "start" | "connection" | "listen" | "noteConnection" | "close">;
  readonly chats: ChatList;
  readonly router: Router;
  readonly threads: Threads;
  /** The chat that this browser showed last, when the page was opened; null if there is none. */
  readonly lastChat: string | null;
  readonly composers: Composers;
  readonly shortcuts: ShortcutSettings;
  readonly allChats = new AllChats(this);
  readonly dialog: Signal<OpenDialog | null> = signal(null);
  readonly models: Signal<readonly Model[]> = signal([]);
  readonly #areModelsKnown = signal(false);
  /** The model for new turns; null: not known yet, or there is none. */
  readonly model: ReadonlySignal<string | null>;
  readonly #chosen: Signal<string | null>;

  /** `onRevoked`: called when the server revokes access. */
  constructor(
    client: Client,
    outbox: Outbox,
    storage: StorageScope,
    me: Me,
    onRevoked: (problem: unknown) => void,
    controls: SessionControls = NO_CONTROLS,
  ) {
    this.client = client;
    this.outbox = outbox;
    this.storage = storage;
    this.me = me;
    this.controls = controls;
    const refused = (problem: unknown): void => {
      if (isAccessRevoked(problem)) onRevoked(problem);
    };
    this.notices = new Notices(refused);
    // The credential is part of the name: another one in this storage scope shares nothing with it.
    const name = `${storage.name} ${me.id ?? me.owner}`;
    this.feed = me.chat == null ? new ChangeFeed(client, name, refused) : new SharedChatFeed(client, me.chat, refused);
    this.chats = new ChatList(this);
    this.router = new Router(me.chat ?? null, this.keeps, storage.name);
    this.threads = new Threads(this);
    effect(() => {
      this.threads.newChat.value = this.chats.scopes.newChat.value;
    });
    this.lastChat = storage.get(LAST_CHAT);
    effect(() => {
      const id = this.threads.current.value?.id.value ?? null;
      if (id !== null) storage.set(LAST_CHAT, id);
    });
    this.router.wouldLose = () => wouldLoseTurns(this.threads.current.peek());
    this.composers = new Composers(this);
    this.shortcuts = new ShortcutSettings(storage);
    this.#chosen = signal(storage.get("model"));
    storage.watch("model", () => (this.#chosen.value = storage.get("model")));
    this.model = computed(() => {
      const names = this.models.value.map(({ id }) => id);
      const chosen = this.#chosen.value;
      return chosen !== null && names.includes(chosen) ? chosen : (names[0] ?? null);
    });
    if (this.mayRun) void this.#loadModels();
  }

  /** Whether this is a visitor who may read one shared chat. */
  get isReader(): boolean {
    return this.me.chat != null;
  }

  /** Whether this is a guest with a share link and chats of its own. */
  get isGuest(): boolean {
    return this.me.share != null && !this.isReader;
  }

  /** Whether the server keeps the chats; if not, they live in the memory of this page. */
  get keeps(): boolean {
    return this.me.keeps !== false && new URLSearchParams(location.search).get("keep") !== "no";
  }

  get mayRun(): boolean {
    return !this.isReader && this.#has("turns:run");
  }

  get mayRead(): boolean {
    return this.#has("chats:read");
  }

  get mayWrite(): boolean {
    return !this.isReader && this.#has("chats:write");
  }

  /** Whether it may create links to its chats: tokens do, and a guest has that of another link. */
  get mayShare(): boolean {
    return this.mayWrite && this.mayRead && !this.isGuest && this.me.id != null;
  }

  /** Whether it may administer the server: some tokens, and never a caller without one. */
  get mayAdminister(): boolean {
    return this.me.id != null && this.#has("admin");
  }

  /** Whether a server has listed its models, even if there are none. */
  get areModelsKnown(): ReadonlySignal<boolean> {
    return this.#areModelsKnown;
  }

  choose(model: string): void {
    this.#chosen.value = model;
    this.storage.set("model", model);
  }

  /** Stop everything. Late results are neither shown nor stored. */
  close(): void {
    this.storage.close();
    this.composers.close();
    this.threads.close();
    this.router.close();
    this.chats.close();
    this.feed.close();
  }

  /** The client reports whether its requests reach the server. */
  noteConnection(isLost: boolean): void {
    this.feed.noteConnection(isLost);
  }

  #has(scope: TokenScope): boolean {
    return this.me.scopes.includes(scope);
  }

  async #loadModels(): Promise<void> {
    while (!this.storage.isClosed && !this.#areModelsKnown.peek()) {
      try {
        this.models.value = await this.client.models();
        this.#areModelsKnown.value = true;
      } catch (problem) {
        // Messages wait for the models, so this retries until the server is back.
        const isLost = problem instanceof TurnledgerError && problem.isRetryable;
        if (!isLost) return void this.notices.problem(problem);
        await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE));
      }
    }
  }
}

/** Whether the token is no longer valid. */
export function isAccessRevoked(problem: unknown): boolean {
  if (!(problem instanceof TurnledgerError)) return false;
  // A stream has no status, but the same code.
  return problem.status === 401 || /^(token_revoked|token_expired|invalid_token|missing_token)$/.test(problem.code);
}

/** Whether leaving this thread would lose turns. */
function wouldLoseTurns(thread: (Pick<Thread, "turns" | "pending"> & { isKept?: boolean }) | null): boolean {
  if (!thread || thread.isKept !== false) return false;
  return thread.turns.peek().length > 0 || thread.pending.peek().length > 0;
}
