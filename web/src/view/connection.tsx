/** A banner while the server cannot be reached. */

import { useComputed, useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Session } from "../session/session";
import { OfflineIcon } from "./icons";
import { strings } from "../strings";

export function ConnectionView({ session }: { session: Session }) {
  const isLost = useOffline(session);
  useEffect(() => {
    let wasLost = false;
    return isLost.subscribe((now) => {
      if (now) session.notices.announce(strings.layout.noConnection);
      else if (wasLost) session.notices.announce(strings.layout.connected);
      wasLost = now;
    });
  }, [session]);
  if (!isLost.value) return null;
  return (
    <p class="banner">
      <OfflineIcon size={16} />
      {strings.layout.noConnection}
    </p>
  );
}

/** Whether the browser is offline or the session has lost its server. */
export function useOffline(session: Session): ReadonlySignal<boolean> {
  const isOnline = useSignal(navigator.onLine);
  useEffect(() => {
    const update = (): void => void (isOnline.value = navigator.onLine);
    addEventListener("online", update);
    addEventListener("offline", update);
    return () => {
      removeEventListener("online", update);
      removeEventListener("offline", update);
    };
  }, []);
  return useComputed(() => !isOnline.value || session.feed.connection.value === "lost");
}
