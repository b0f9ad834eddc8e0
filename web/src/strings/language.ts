/** The language of the page: the browser's, unless the user chooses one. */

import { effect, signal } from "@preact/signals";
import type { StorageScope } from "../session/storage-scope";
import { StoredChoice } from "../session/stored-choice";
import { LANGUAGES, preferredLanguage, showLanguage, strings, type LanguageName } from ".";

const preferred = signal(preferredLanguage(navigator.languages));
addEventListener("languagechange", () => (preferred.value = preferredLanguage(navigator.languages)));

export class Language {
  readonly choice: StoredChoice<"browser" | LanguageName>;
  /** Resolves when the first language is shown. */
  shown = Promise.resolve();
  readonly #cleanups: (() => void)[];

  constructor(storage: StorageScope) {
    const names = Object.keys(LANGUAGES) as LanguageName[];
    this.choice = new StoredChoice(storage, "language", ["browser", ...names]);
    this.#cleanups = [
      effect(() => {
        const { value } = this.choice;
        this.shown = showLanguage(value === "browser" ? preferred.value : value);
      }),
      effect(() => {
        document.documentElement.lang = strings.language;
      }),
    ];
  }

  /** Ignore other tabs, and show no later choice. */
  close(): void {
    this.choice.close();
    for (const end of this.#cleanups) end();
  }
}
