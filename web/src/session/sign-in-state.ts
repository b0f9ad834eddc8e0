/** The states of signing in, and the transitions between them. */

import type { Session } from "./session";

export type SignInState =
  /** Who he is is being asked. */
  | { readonly kind: "checking" }
  /** The server is away, or has too much to do. It is asked again by itself, or as soon as somebody says so. */
  | { readonly kind: "waiting"; readonly title: string; readonly why: string }
  /** A token is asked for. `hasEnded`: he was in, or has been before. `problem`: what was wrong with the last one. */
  | {
      readonly kind: "signed out";
      readonly why: string | null;
      readonly hasEnded: boolean;
      readonly problem: string | null;
    }
  /** The token that he gave is looked at. */
  | { readonly kind: "signing in" }
  /** Nothing that he could do here would let him in. */
  | { readonly kind: "refused"; readonly title: string; readonly why: string }
  | { readonly kind: "signed in"; readonly session: Session };

export type SignInKind = SignInState["kind"];

/** Another credential in another tab, or another link in this one, begin everything anew: "checking" follows on all. */
export const TRANSITIONS: Readonly<Record<SignInKind, readonly SignInKind[]>> = {
  checking: ["checking", "waiting", "signed out", "refused", "signed in"],
  waiting: ["checking"],
  "signed out": ["checking", "signing in", "signed out"],
  "signing in": ["checking", "signed out", "signed in"],
  refused: ["checking"],
  "signed in": ["checking", "signed out", "refused"],
};
