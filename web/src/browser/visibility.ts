/** Whether this tab is visible. */

import { signal, type ReadonlySignal } from "@preact/signals";

const visible = signal(isVisible());
document.addEventListener("visibilitychange", () => (visible.value = isVisible()));

export const isTabVisible: ReadonlySignal<boolean> = visible;

function isVisible(): boolean {
  return document.visibilityState === "visible";
}
