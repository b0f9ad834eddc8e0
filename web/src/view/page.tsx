/** The page: who is not let in sees what to do about it, who is sees his chats. */

import { useMemo } from "preact/hooks";
import type { Arriving } from "../session/sign-in";
import { asked } from "./address-options";
import { Boundary } from "./error-boundary";
import { FrameView } from "./layout";
import { ArrivalView } from "./sign-in";
import { Theme } from "./theme";

export function PageView({ arriving }: { arriving: Arriving }) {
  const arrival = arriving.arrival.value;
  const session = arrival.kind === "in" ? arrival.session : null;
  // Known before the server has said who somebody is: whoever likes it dark is not blinded meanwhile.
  const theme = useMemo(() => new Theme(session?.realm ?? arriving.realm, asked().theme), [session]);
  if (arrival.kind !== "in") return <ArrivalView arriving={arriving} arrival={arrival} />;
  return (
    <Boundary what="This page">
      {/* Another credential is another page: nothing that a view remembers is shown on. */}
      <FrameView key={arrival.session.realm.name} session={arrival.session} theme={theme} />
    </Boundary>
  );
}
