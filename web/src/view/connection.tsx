/** Says that nobody is at the other end, for as long as it is so. */

import { useEffect } from "preact/hooks";
import type { Session } from "../session/session";
import { OfflineIcon } from "./icons";
import { useOffline } from "./offline";

export function ConnectionView({ session }: { session: Session }) {
  const isLost = useOffline(session);
  useEffect(() => {
    let wasLost = false;
    return isLost.subscribe((now) => {
      if (now) session.notices.say("No connection. Trying again…");
      else if (wasLost) session.notices.say("Connected again.");
      wasLost = now;
    });
  }, [session]);
  if (!isLost.value) return null;
  return (
    <p class="banner">
      <OfflineIcon size={16} />
      No connection. Trying again…
    </p>
  );
}
