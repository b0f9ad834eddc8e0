/** Where somebody is on his way in, and which steps there are from there. */

import type { Session } from "./session";

export type Arrival =
  /** Who he is is being asked. */
  | { readonly kind: "arriving" }
  /** The server is away, or has too much to do. It is asked again by itself, or as soon as somebody says so. */
  | { readonly kind: "waiting"; readonly title: string; readonly why: string }
  /** A token is asked for. `hasEnded`: he was in, or has been before. `problem`: what was wrong with the last one. */
  | { readonly kind: "out"; readonly why: string | null; readonly hasEnded: boolean; readonly problem: string | null }
  /** The token that he gave is looked at. */
  | { readonly kind: "signing in" }
  /** Nothing that he could do here would let him in. */
  | { readonly kind: "refused"; readonly title: string; readonly why: string }
  | { readonly kind: "in"; readonly session: Session };

export type ArrivalKind = Arrival["kind"];

/** Another credential in another tab, or another link in this one, begin everything anew: "arriving" follows on all. */
export const MOVES: Readonly<Record<ArrivalKind, readonly ArrivalKind[]>> = {
  arriving: ["arriving", "waiting", "out", "refused", "in"],
  waiting: ["arriving"],
  out: ["arriving", "signing in", "out"],
  "signing in": ["arriving", "out", "in"],
  refused: ["arriving"],
  in: ["arriving", "out", "refused"],
};
