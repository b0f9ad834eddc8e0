/** What the page shows, and how the address names it. */

import { signal, type ReadonlySignal } from "@preact/signals";

/** A chat; one that is not made yet; or one that is not kept, which no address names. The last two have a number of
 * their own: a second "new chat" is another place. */
export type Route =
  | { readonly kind: "chat"; readonly id: string }
  | { readonly kind: "new"; readonly number: number }
  | { readonly kind: "unkept"; readonly number: number };

export class Router {
  readonly #route = signal<Route | null>(null);
  readonly #leaving = signal<Route | null>(null);
  readonly #ending = new AbortController();
  readonly #only: string | null;
  readonly #keeps: boolean;
  /** Whether what is shown would be lost by going elsewhere: then it is asked first. */
  wouldLose: () => boolean = () => false;
  #last = 0;

  /** `only`: the one chat that there is for somebody who came by a link to it. `keeps`: whether chats are kept. */
  constructor(only: string | null, keeps = true) {
    this.#only = only;
    this.#keeps = keeps;
    this.#read();
    addEventListener("hashchange", () => this.#read(), { signal: this.#ending.signal });
  }

  /** Null until somebody says where to begin. */
  get route(): ReadonlySignal<Route | null> {
    return this.#route;
  }

  /** Where somebody wants to go, and would lose what is shown by it; null: nowhere. */
  get leaving(): ReadonlySignal<Route | null> {
    return this.#leaving;
  }

  /** Show a chat. */
  open(id: string): void {
    this.#go({ kind: "chat", id });
  }

  /** Show a chat at first, or a new one: nobody goes back behind it. Whoever has named another one in the address by
   * now is shown that: the browser tells of it later. */
  start(id: string | null): void {
    this.#read();
    if (this.#route.peek() === null) this.#show(id === null ? this.#fresh() : { kind: "chat", id }, true);
  }

  /** Show a new chat, another one each time. */
  openNew(): void {
    this.#go(this.#fresh());
  }

  /** Show a new chat that is not kept. */
  openUnkept(): void {
    this.#go({ kind: "unkept", number: ++this.#last });
  }

  /** The new chat that is shown got its id: it stays the same place. */
  chatCreated(id: string): void {
    history.replaceState(null, "", `#${id}`);
  }

  /** Go where somebody wants to go: what is lost by it may be lost. */
  leave(): void {
    const to = this.#leaving.peek();
    this.stay();
    if (to) this.#show(to);
  }

  /** Stay, after all. */
  stay(): void {
    this.#leaving.value = null;
  }

  /** Show what the address names. */
  #read(): void {
    const named = location.hash.slice(1);
    if (this.#only !== null) this.#route.value = { kind: "chat", id: this.#only };
    else if (named.startsWith("conv_")) this.#go({ kind: "chat", id: named });
    else if (named === "new" && this.#route.peek()?.kind !== "new") this.#go(this.#fresh());
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
    // What is not kept takes the place of what was there: nobody gets back to it.
    if (isFirst || fragment === null) history.replaceState(null, "", addressOf(fragment));
    else history.pushState(null, "", addressOf(fragment));
  }

  #fresh(): Route {
    return { kind: this.#keeps ? "new" : "unkept", number: ++this.#last };
  }
}

function addressOf(fragment: string | null): string {
  return fragment === null ? location.pathname + location.search : `#${fragment}`;
}
