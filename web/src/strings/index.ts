/** The text of the page in the language that is shown. Each language has a file with all of it. */

import { signal } from "@preact/signals";
import { english } from "./english";
import { languageOf, localeFor } from "./formats";

/** What each language has: the compiler refuses one with a string missing, or one too many. */
export type Strings = typeof english;

/** In their own words. */
export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type LanguageName = keyof typeof LANGUAGES;

const loaded = new Map<LanguageName, Strings>([["en", english]]);
/** Others than English are loaded when they are first shown. */
const files: Readonly<Record<LanguageName, () => Promise<Strings>>> = {
  en: () => Promise.resolve(english),
  de: async () => (await import("./german")).german,
};

const current = signal<Strings>(english);
let wanted: LanguageName = "en";

/** Views and signals that read a text follow the language. */
export const strings: Strings = new Proxy(english, {
  get: (_, name) => current.value[name as keyof Strings],
});

/** Show a language: at once if it is loaded. One that cannot be loaded leaves the former. */
export async function showLanguage(name: LanguageName): Promise<void> {
  wanted = name;
  if (!loaded.has(name)) {
    const found = await files[name]().catch(() => null);
    if (found) loaded.set(name, found);
  }
  const found = loaded.get(name);
  if (found && wanted === name) current.value = found;
}

/** The first language of the page that a browser prefers. */
export function preferredLanguage(locales: readonly string[]): LanguageName {
  return locales.map(languageOf).find((each): each is LanguageName => Object.hasOwn(LANGUAGES, each)) ?? "en";
}

/** The locale for dates and times. */
export function locale(): string {
  return localeFor(strings.language);
}
