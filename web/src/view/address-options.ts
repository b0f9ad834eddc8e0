/** Options in the address that change how the page looks. */

import type { ThemeName } from "./theme";

interface AddressOptions {
  /** Whether it is embedded in another page: there is little room, and the chats are shown on demand. */
  readonly isEmbedded: boolean;
  readonly theme: ThemeName | null;
  /** Values of the style sheet's variables, by name; only where it is embedded. */
  readonly variables: ReadonlyMap<string, string>;
}

/** The variables that an embedding page may set, and the property whose values they take. */
const VARIABLES: Readonly<Record<string, string>> = {
  "--paper": "color",
  "--ink": "color",
  "--accent": "color",
  "--on-accent": "color",
  "--radius": "border-top-left-radius",
};

const REFERENCE = /(?:var|env|attr|url)\(|^\s*(?:inherit|initial|unset|revert)/i;

export function addressOptions(search = location.search): AddressOptions {
  const query = new URLSearchParams(search);
  const theme = query.get("theme");
  const isEmbedded = query.get("embed") === "1";
  return {
    isEmbedded,
    theme: theme === "light" || theme === "dark" ? theme : null,
    variables: new Map([...query].filter(([name, value]) => isEmbedded && isValid(name, value))),
  };
}

/** Whether this is a variable with a value of its own: not one that refers to others, nor an invalid one, which would
 * disable all that use it. */
function isValid(name: string, value: string): boolean {
  const property = Object.hasOwn(VARIABLES, name) ? VARIABLES[name] : undefined;
  return property !== undefined && !REFERENCE.test(value) && CSS.supports(property, value);
}
