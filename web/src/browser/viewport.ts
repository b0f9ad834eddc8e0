/** The size of the window. */

import { signal, type ReadonlySignal } from "@preact/signals";

const NARROW = matchMedia("(max-width: 832px), (max-width: 1000px) and (max-height: 480px)");
const narrow = signal(NARROW.matches);
NARROW.addEventListener("change", () => (narrow.value = NARROW.matches));

export const isNarrow: ReadonlySignal<boolean> = narrow;

/** Some phones cover the page with their keyboard instead of resizing it: keep the page above it. */
export function stayAboveKeyboard(): void {
  const viewport = visualViewport;
  if (!viewport) return;
  const fit = (): void => {
    const isCovered = viewport.scale === 1 && innerHeight - viewport.height > 1;
    const { style } = document.documentElement;
    if (isCovered) style.setProperty("--window-height", `${viewport.height}px`);
    else style.removeProperty("--window-height");
    if (isCovered) scrollTo(0, 0);
  };
  viewport.addEventListener("resize", fit);
}
