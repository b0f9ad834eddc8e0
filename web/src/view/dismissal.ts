/** Dismiss a popup when the user clicks or focuses something outside. */

import { useLayoutEffect } from "preact/hooks";

/** `isWithin`: whether that is not elsewhere. */
export function useDismissal(isWithin: (at: Node) => boolean, leave: () => void): void {
  // Before anything is painted: a press may come as soon as there is something to see.
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
