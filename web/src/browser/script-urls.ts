/** The scripts that the page starts besides its own: its policy trusts no other address. */

import highlighter from "../markdown/highlight/worker?worker&url";

export const SCRIPT_URLS = { highlighter, offline: "service-worker.js" } as const;

interface TrustedTypes {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): { createScriptURL(url: string): unknown };
}

const policy = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes?.createPolicy("turnledger", {
  createScriptURL: (url) => {
    if (!Object.values(SCRIPT_URLS).includes(url)) throw new TypeError("This is no script of the page.");
    return url;
  },
});

/** The address as browsers want it that require Trusted Types. */
export function trustedScriptUrl(name: keyof typeof SCRIPT_URLS): string {
  const url = SCRIPT_URLS[name];
  return (policy?.createScriptURL(url) ?? url) as string;
}
