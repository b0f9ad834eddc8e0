/** ‹ 2/3 ›: switch between sibling turns. */

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Turn } from "turnledger";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { LeftIcon, RightIcon } from "../icons";

interface Given {
  readonly session: Session;
  readonly thread: Thread;
  readonly turn: Turn;
}

/** The button to focus when the sibling is shown. */
let wanted: { readonly thread: Thread; readonly number: number; readonly label: string } | null = null;

export function VersionSwitcher({ session, thread, turn }: Given) {
  const group = useRef<HTMLDivElement>(null);
  const siblings = thread.siblings(turn).value;
  useLayoutEffect(() => {
    if (!siblings || wanted?.thread !== thread || wanted.number !== turn.number) return;
    group.current?.querySelector<HTMLElement>(`[aria-label="${wanted.label}"]`)?.focus({ preventScroll: true });
    wanted = null;
  }, [siblings]);
  if (!siblings) return null;
  const { at, branches } = siblings;
  // Switching is not possible while turns are pending.
  const isFree = session.mayWrite && thread.pending.value.length === 0;
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
          if (branch === undefined || !isFree) return;
          wanted = { thread, number: turn.number, label };
          void thread.switch(branch, turn.number);
        }}
      >
        <Icon size={16} />
      </button>
    );
  };
  return (
    <div ref={group} class="siblings" role="group" aria-label="Versions">
      {step(-1, "Previous version", LeftIcon)}
      <span aria-label={`Version ${at + 1} of ${branches.length}`} role="img">
        {at + 1}/{branches.length}
      </span>
      {step(1, "Next version", RightIcon)}
    </div>
  );
}
