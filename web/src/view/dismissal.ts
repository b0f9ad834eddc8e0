/** Dismiss a popup when the user clicks or focuses something outside. */

import { useLayoutEffect } from "preact/hooks";

/** `isWithin`: whether a node is inside. */
export function useDismissal(isWithin: (at: Node) => boolean, leave: () => void): void {
  // Before painting: a click may come as soon as something is visible.
  useLayoutEffect(() => {
    const check = (event: Event): void => {
      if (!isWithin(event.target as Node)) leave();
    };
    document.addEventListener("pointerdown", check, true);
    document.addEventListener("focusin", check);
    return () => {
      document.removeEventListener("pointerdown", check, true);
      document.removeEventListener("focusin", check);
    };
  }, []);
}
