/** What happens to a message sent while another one is being answered. */

import type { OnBusy } from "turnledger";

/** The choices, default first. A policy that only some agents support belongs here once servers report which do. */
export const BUSY_POLICIES = ["queue", "interrupt", "rollback"] as const satisfies readonly OnBusy[];

export const DEFAULT_POLICY: OnBusy = BUSY_POLICIES[0];
