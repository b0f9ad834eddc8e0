/** ‹ 2/3 ›: the other turns that were made in the place of one, and the way to them. */

import type { Turn } from "turnledger";
import type { Session } from "../../session/session";
import type { ShownThread } from "../../thread/shown-thread";
import { LeftIcon, RightIcon } from "../icons";

interface Given {
  readonly session: Session;
  readonly thread: ShownThread;
  readonly turn: Turn;
}

export function SiblingsView({ session, thread, turn }: Given) {
  const siblings = thread.siblings(turn).value;
  if (!siblings) return null;
  const { at, branches } = siblings;
  // While something is on its way, nothing can be switched.
  const isFree = session.mayWrite && thread.running.value.length === 0;
  const step = (by: -1 | 1, label: string, Icon: typeof LeftIcon) => {
    const branch = branches[at + by];
    return (
      <button
        type="button"
        class="quiet-button icon-only small"
        aria-label={label}
        title={label}
        aria-disabled={branch === undefined || !isFree}
        onClick={() => {
          if (branch !== undefined && isFree) void thread.switch(branch, turn.number);
        }}
      >
        <Icon size={16} />
      </button>
    );
  };
  return (
    <div class="siblings" role="group" aria-label="Versions">
      {step(-1, "Previous version", LeftIcon)}
      <span aria-label={`Version ${at + 1} of ${branches.length}`} role="img">
        {at + 1}/{branches.length}
      </span>
      {step(1, "Next version", RightIcon)}
    </div>
  );
}
