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
    showBarColor(name);
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
  }
}

/** Colour the browser's own bars: `index.html` has a colour for each theme. */
function showBarColor(theme: ThemeName): void {
  for (const meta of document.querySelectorAll<HTMLMetaElement>("meta[name=theme-color]")) {
    const scheme = meta.dataset["scheme"];
    if (theme === "system") meta.media = `(prefers-color-scheme: ${scheme})`;
    else meta.media = scheme === theme ? "all" : "not all";
  }
}
