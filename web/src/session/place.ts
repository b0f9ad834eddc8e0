/** What the page shows, and how the address names it. */

import { signal, type ReadonlySignal } from "@preact/signals";

/** A chat; or one that is not made yet, by a number of its own: a second "new chat" is another place. */
export type Where = { readonly kind: "chat"; readonly id: string } | { readonly kind: "new"; readonly number: number };

export class Place {
  readonly #where = signal<Where | null>(null);
  readonly #leave: () => void;
  #last = 0;

  /** `only`: the one chat that there is for somebody who came by a link to it. */
  constructor(only: string | null) {
    const read = (): void => {
      const named = location.hash.slice(1);
      if (only !== null) this.#where.value = { kind: "chat", id: only };
      else if (named.startsWith("conv_")) this.#where.value = { kind: "chat", id: named };
      else if (named === "new" && this.#where.value?.kind !== "new") this.#where.value = this.#fresh();
    };
    read();
    addEventListener("hashchange", read);
    this.#leave = () => removeEventListener("hashchange", read);
  }

  /** Null until somebody says where to begin. */
  get where(): ReadonlySignal<Where | null> {
    return this.#where;
  }

  /** Show a chat. */
  open(id: string): void {
    this.#where.value = { kind: "chat", id };
    if (location.hash !== `#${id}`) history.pushState(null, "", `#${id}`);
  }

  /** Show a chat at first: nobody goes back behind it. */
  begin(id: string | null): void {
    if (id !== null) {
      this.#where.value = { kind: "chat", id };
      history.replaceState(null, "", `#${id}`);
    } else {
      this.#where.value = this.#fresh();
      history.replaceState(null, "", "#new");
    }
  }

  /** Show a new chat, another one each time. */
  openNew(): void {
    this.#where.value = this.#fresh();
    if (location.hash !== "#new") history.pushState(null, "", "#new");
  }

  /** The new chat that is shown got its id: it stays the same place. */
  named(id: string): void {
    history.replaceState(null, "", `#${id}`);
  }

  close(): void {
    this.#leave();
  }

  #fresh(): Where {
    return { kind: "new", number: ++this.#last };
  }
}
