/** The states of signing in, and the transitions between them. */

import type { Session } from "./session";

export type SignInState =
  /** The server is identifying the caller. */
  | { readonly kind: "checking" }
  /** The server is unavailable or overloaded. The page retries automatically, or on request. */
  | { readonly kind: "waiting"; readonly title: string; readonly why: string }
  /** A token is required. `hasEnded`: the user was signed in before. `problem`: what was wrong with the last token. */
  | {
      readonly kind: "signed out";
      readonly why: string | null;
      readonly hasEnded: boolean;
      readonly problem: string | null;
    }
  /** The entered token is being checked. */
  | { readonly kind: "signing in" }
  /** The user cannot sign in here. */
  | { readonly kind: "refused"; readonly title: string; readonly why: string }
  | { readonly kind: "signed in"; readonly session: Session };

export type SignInKind = SignInState["kind"];

/** A new credential in another tab, or a new link in this one, starts again: "checking" follows every state. */
export const TRANSITIONS: Readonly<Record<SignInKind, readonly SignInKind[]>> = {
  checking: ["checking", "waiting", "signed out", "refused", "signed in"],
  waiting: ["checking"],
  "signed out": ["checking", "signing in", "signed out"],
  "signing in": ["checking", "signed out", "signed in"],
  refused: ["checking"],
  "signed in": ["checking", "signed out", "refused"],
};
