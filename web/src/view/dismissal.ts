/** Dismiss a popup when the user clicks or focuses something outside. */

import { useLayoutEffect } from "preact/hooks";

/** `isWithin`: whether a node is inside. */
export function useDismissal(isWithin: (at: Node) => boolean, leave: () => void): void {
  // Before painting: a click may come as soon as something is visible.
  useLayoutEffect(() => {
    const look = (event: Event): void => {
      if (!isWithin(event.target as Node)) leave();
    };
    document.addEventListener("pointerdown", look, true);
    document.addEventListener("focusin", look);
    return () => {
      document.removeEventListener("pointerdown", look, true);
      document.removeEventListener("focusin", look);
    };
  }, []);
}
