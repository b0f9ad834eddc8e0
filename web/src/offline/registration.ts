/** Start the service worker, which says so when the server cannot be reached. */

import { trustedScriptUrl } from "../browser/script-urls";

/** Register it once the page has loaded; not in a frame, which belongs to another page, nor where browsers have none:
 * by plain http, or in some private windows. */
export function registerOfflinePage(): void {
  if (!("serviceWorker" in navigator) || window.top !== window) return;
  const register = (): void => {
    const done = navigator.serviceWorker.register(trustedScriptUrl("offline"), { updateViaCache: "none" });
    // The server may have become unreachable. The next visit tries again.
    done.catch(() => undefined);
  };
  if (document.readyState === "complete") register();
  else addEventListener("load", register, { once: true });
}
