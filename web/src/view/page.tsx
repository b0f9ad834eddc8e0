/** The page: who is not let in sees why, who is sees his chats. */

import type { Arriving } from "../session/arriving";
import { Boundary } from "./boundary";
import { FrameView } from "./frame";

export function PageView({ arriving }: { arriving: Arriving }) {
  const arrival = arriving.arrival.value;
  switch (arrival.kind) {
    case "arriving":
      return <main class="whole" aria-busy="true" aria-label="Turnledger" />;
    case "in":
      return (
        <Boundary what="This page">
          <FrameView session={arrival.session} />
        </Boundary>
      );
    default:
      return (
        <main class="whole">
          <h1>Turnledger</h1>
          <p role="alert">{arrival.why}</p>
        </main>
      );
  }
}
