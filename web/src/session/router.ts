/** The current route, and its address. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { tabStorage } from "../browser/storage";
import { StorageScope } from "./storage-scope";

/** A chat; a new one; or one that is not kept, which has no address. The last two are numbered: a second "new chat" is
 * another route. */
export type Route =
  | { readonly kind: "chat"; readonly id: string }
  | { readonly kind: "new"; readonly number: number }
  | { readonly kind: "unkept"; readonly number: number };

/** Where a tab keeps the chat that it created last, and when. */
const CREATED = "created";

export class Router {
  readonly #route = signal<Route | null>(null);
  readonly #leaving = signal<Route | null>(null);
  readonly #ending = new AbortController();
  readonly #only: string | null;
  readonly #keeps: boolean;
  readonly #storage: StorageScope;
  /** Whether navigating away would lose turns; then the user has to confirm it. */
  wouldLose: () => boolean = () => false;
  #last = 0;
  /** The route of a new chat that has its id now, and so no longer the address `#new`. */
  #created: Route | null = null;

  /** `only`: the single chat that a share link shows. `keeps`: whether chats are kept. `scope`: the name of the
   * credential's storage. */
  constructor(only: string | null, keeps = true, scope = "") {
    this.#only = only;
    this.#keeps = keeps;
    this.#storage = new StorageScope(scope, tabStorage());
    if (location.hash === "#new") this.#correctAddress();
    this.#read();
    addEventListener("hashchange", () => this.#read(), { signal: this.#ending.signal });
  }

  /** Null until the first route is known. */
  get route(): ReadonlySignal<Route | null> {
    return this.#route;
  }

  /** The route that waits for the user's confirmation, because it would lose turns; null if there is none. */
  get leaving(): ReadonlySignal<Route | null> {
    return this.#leaving;
  }

  open(id: string): void {
    this.#go({ kind: "chat", id });
  }

  /** Show the first chat, or a new one, without an entry in the history. If the address names another chat by then,
   * show that: its event arrives later. */
  start(id: string | null): void {
    this.#read();
    if (this.#route.peek() === null) this.#show(id === null ? this.#fresh() : { kind: "chat", id }, true);
  }

  openNew(): void {
    this.#go(this.#fresh());
  }

  openUnkept(): void {
    this.#go({ kind: "unkept", number: ++this.#last });
  }

  /** The new chat has its id now: it stays the same route. */
  chatCreated(id: string): void {
    history.replaceState(null, "", `#${id}`);
    this.#created = this.#route.peek();
    this.#storage.set(CREATED, JSON.stringify({ id, at: now() }));
  }

  /** During a reload the old page runs until the new one has loaded. A chat created meanwhile is the one to show; the
   * address is older. */
  #correctAddress(): void {
    const { id, at } = JSON.parse(this.#storage.get(CREATED) ?? "{}") as { id?: string; at?: number };
    if (id && at && at >= performance.timeOrigin) history.replaceState(null, "", `#${id}`);
  }

  /** Go to the waiting route, and lose the turns. */
  leave(): void {
    const to = this.#leaving.peek();
    this.stay();
    if (to) this.#show(to);
  }

  stay(): void {
    this.#leaving.value = null;
  }

  #read(): void {
    const named = location.hash.slice(1);
    if (this.#only !== null) this.#route.value = { kind: "chat", id: this.#only };
    else if (named.startsWith("conv_")) this.#go({ kind: "chat", id: named });
    else if (named === "new" && !this.#isNew()) this.#go(this.#fresh());
  }

  #isNew(): boolean {
    const route = this.#route.peek();
    return route?.kind === "new" && route !== this.#created;
  }

  close(): void {
    this.#ending.abort();
  }

  #go(route: Route): void {
    if (!this.wouldLose()) return this.#show(route);
    this.#leaving.value = route;
    if (location.hash) history.replaceState(null, "", addressOf(null));
  }

  #show(route: Route, isFirst = false): void {
    this.stay();
    this.#route.value = route;
    const fragment = route.kind === "chat" ? route.id : route.kind === "new" ? "new" : null;
    if (location.hash.slice(1) === (fragment ?? "")) return;
    // A temporary chat replaces the history entry: there is no way back to it.
    if (isFirst || fragment === null) history.replaceState(null, "", addressOf(fragment));
    else history.pushState(null, "", addressOf(fragment));
  }

  #fresh(): Route {
    return { kind: this.#keeps ? "new" : "unkept", number: ++this.#last };
  }
}

/** Milliseconds by the clock that also measures when a page began to load. */
function now(): number {
  return performance.timeOrigin + performance.now();
}

function addressOf(fragment: string | null): string {
  return fragment === null ? location.pathname + location.search : `#${fragment}`;
}
