/** What happens to a message sent while another one is being answered. */

import type { OnBusy } from "turnledger";

interface Policy {
  readonly name: OnBusy;
  readonly label: string;
  /** What it does, in a sentence. */
  readonly meaning: string;
}

/** Those that there are to choose from, the first unless somebody chooses. What a running agent could take only goes in
 * here when a server says which agents can. */
export const BUSY_POLICIES: readonly [Policy, ...Policy[]] = [
  { name: "queue", label: "Queue", meaning: "Waits for its turn, then is answered." },
  { name: "interrupt", label: "Interrupt", meaning: "Stops the running answer, keeps what it said, and goes first." },
  { name: "rollback", label: "Roll back", meaning: "Stops the running answer, takes it back, and goes first." },
];

export const DEFAULT_POLICY = BUSY_POLICIES[0].name;
