/** Whether nobody is at the other end, as far as the browser and the session know. */

import { useComputed, useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Session } from "../session/session";

export function useOffline(session: Session): ReadonlySignal<boolean> {
  const isOnline = useSignal(navigator.onLine);
  useEffect(() => {
    const look = (): void => void (isOnline.value = navigator.onLine);
    addEventListener("online", look);
    addEventListener("offline", look);
    return () => {
      removeEventListener("online", look);
      removeEventListener("offline", look);
    };
  }, []);
  return useComputed(() => !isOnline.value || session.live.connection.value === "lost");
}
