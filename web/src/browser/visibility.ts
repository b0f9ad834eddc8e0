/** Whether this tab is visible. */

import { signal, type ReadonlySignal } from "@preact/signals";

const seen = signal(isSeen());
document.addEventListener("visibilitychange", () => (seen.value = isSeen()));

export const isTabVisible: ReadonlySignal<boolean> = seen;

function isSeen(): boolean {
  return document.visibilityState === "visible";
}
