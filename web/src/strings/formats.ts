/** Numbers and plurals as a language writes them. */

interface Formats {
  number(value: number, digits?: number): string;
  /** The form for a count, as in `{ one: "chat", other: "chats" }`. */
  plural(count: number, forms: PluralForms): string;
  /** The number with the form for it, as in `1,204 chats`. */
  counted(count: number, forms: PluralForms): string;
  /** A size, as in `1.2 MB`. */
  bytes(count: number): string;
}

type PluralForms = Readonly<Partial<Record<Intl.LDMLPluralRule, string>> & { other: string }>;

const UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];

export function formatsOf(language: string): Formats {
  const locale = localeFor(language);
  const whole = new Intl.NumberFormat(locale);
  const rules = new Intl.PluralRules(locale);
  const number = (value: number, digits?: number): string =>
    digits === undefined
      ? whole.format(value)
      : value.toLocaleString(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const plural = (count: number, forms: PluralForms): string => forms[rules.select(count)] ?? forms.other;
  const counted = (count: number, forms: PluralForms): string => `${number(count)} ${plural(count, forms)}`;
  const bytes = (count: number): string => {
    const step = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), UNITS.length - 1);
    const unit = UNITS[step] as string;
    const style = { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: 1 } as const;
    return (count / 1000 ** step).toLocaleString(locale, style);
  };
  return { number, plural, counted, bytes };
}

/** The region that the browser prefers for a language, as `en-GB` for `en`; the language itself if it names none. */
export function localeFor(language: string): string {
  // The build, which has no browser, reads texts, too.
  const preferred = globalThis.navigator?.languages ?? [];
  return preferred.find((each) => languageOf(each) === language) ?? language;
}

export function languageOf(locale: string): string {
  return (locale.split("-")[0] as string).toLowerCase();
}
