/** How the page looks: light or dark as the system has it, unless the address or the user chooses; and its text size.
 * */

import { effect, type ReadonlySignal } from "@preact/signals";
import type { StorageScope } from "../session/storage-scope";
import { StoredChoice } from "../session/stored-choice";

export type ThemeName = "system" | "light" | "dark";
export type TextSize = "medium" | "small" | "large" | "huge";

export class Theme {
  readonly choice: StoredChoice<ThemeName>;
  readonly textSize: StoredChoice<TextSize>;
  readonly #cleanups: (() => void)[];

  /** `first`: the theme from the address; it holds until the user chooses. `variables`: those of the style sheet that
   * the address sets. */
  constructor(storage: StorageScope, first: ThemeName | null, variables: ReadonlyMap<string, string> = new Map()) {
    const root = document.documentElement;
    for (const [name, value] of variables) root.style.setProperty(name, value);
    this.choice = new StoredChoice(storage, "theme", ["system", "light", "dark"], first);
    this.textSize = new StoredChoice(storage, "text size", ["medium", "small", "large", "huge"]);
    this.#cleanups = [
      show("theme", this.choice),
      show("textSize", this.textSize),
      effect(() => showBarColor(this.choice.value)),
    ];
  }

  get name(): ReadonlySignal<ThemeName> {
    return this.choice.signal;
  }

  choose(name: ThemeName): void {
    this.choice.choose(name);
  }

  /** Ignore other tabs, and show no later choice. */
  close(): void {
    for (const each of [this.choice, this.textSize]) each.close();
    for (const end of this.#cleanups) end();
  }
}

/** Keep an attribute of the document as chosen; the default has none. */
function show(name: string, choice: StoredChoice<string>): () => void {
  const { dataset } = document.documentElement;
  return effect(() => {
    if (choice.value === choice.values[0]) delete dataset[name];
    else dataset[name] = choice.value;
  });
}

/** Colour the browser's own bars: `index.html` has a colour for each theme. */
function showBarColor(theme: ThemeName): void {
  for (const meta of document.querySelectorAll<HTMLMetaElement>("meta[name=theme-color]")) {
    const scheme = meta.dataset["scheme"];
    if (theme === "system") meta.media = `(prefers-color-scheme: ${scheme})`;
    else meta.media = scheme === theme ? "all" : "not all";
  }
}
