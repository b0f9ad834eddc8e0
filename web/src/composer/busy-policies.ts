/** What happens to a message sent while another one is being answered. */

import type { OnBusy } from "turnledger";

interface Policy {
  readonly name: OnBusy;
  readonly label: string;
  /** What it does, as a sentence. */
  readonly meaning: string;
}

/** The choices, default first. A policy that only some agents support belongs here once servers report which do. */
export const BUSY_POLICIES: readonly [Policy, ...Policy[]] = [
  { name: "queue", label: "Queue", meaning: "Waits for its turn, then is answered." },
  { name: "interrupt", label: "Interrupt", meaning: "Stops the running answer, keeps what it said, and goes first." },
  { name: "rollback", label: "Roll back", meaning: "Stops the running answer, takes it back, and goes first." },
];

export const DEFAULT_POLICY = BUSY_POLICIES[0].name;
