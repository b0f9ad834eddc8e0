/** Options in the address that change how the page looks. */

import type { ThemeName } from "./theme";

interface AddressOptions {
  /** Whether it is embedded in another page: there is little room, and the chats are shown on demand. */
  readonly isEmbedded: boolean;
  readonly theme: ThemeName | null;
}

export function addressOptions(search = location.search): AddressOptions {
  const query = new URLSearchParams(search);
  const theme = query.get("theme");
  return {
    isEmbedded: query.get("embed") === "1",
    theme: theme === "light" || theme === "dark" ? theme : null,
  };
}
