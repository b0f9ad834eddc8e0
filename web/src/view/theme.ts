/** Light or dark: as the system has it, unless the address or the user chooses. */

import { signal, type ReadonlySignal } from "@preact/signals";
import type { StorageScope } from "../session/storage-scope";

export type ThemeName = "system" | "light" | "dark";

export class Theme {
  readonly #storage: StorageScope;
  readonly #name = signal<ThemeName>("system");

  /** `first`: the theme from the address; it holds until the user chooses. `variables`: those of the style sheet that
   * the address sets. */
  constructor(storage: StorageScope, first: ThemeName | null, variables: ReadonlyMap<string, string> = new Map()) {
    this.#storage = storage;
    for (const [name, value] of variables) document.documentElement.style.setProperty(name, value);
    const stored = storage.get("theme");
    this.#show(first ?? (stored === "light" || stored === "dark" ? stored : "system"));
  }

  get name(): ReadonlySignal<ThemeName> {
    return this.#name;
  }

  choose(name: ThemeName): void {
    this.#storage.set("theme", name === "system" ? null : name);
    this.#show(name);
  }

  #show(name: ThemeName): void {
    this.#name.value = name;
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
  }
}
