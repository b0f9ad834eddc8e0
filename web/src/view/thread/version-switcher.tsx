/** ‹ 2/3 ›: switch between sibling turns. */

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Turn } from "turnledger";
import type { Session } from "../../session/session";
import type { Siblings, Thread } from "../../thread/thread";
import { LeftIcon, RightIcon } from "../icons";
import { strings } from "../../strings";

interface SwitcherProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly turn: Turn;
  /** What differs between the versions: the message was edited, or the answer regenerated. */
  readonly of: keyof Siblings;
}

/** The button to focus when the sibling is shown. */
let nextFocus: (Pick<SwitcherProps, "thread" | "of"> & { readonly number: number; readonly by: -1 | 1 }) | null = null;

export function VersionSwitcher({ session, thread, turn, of }: SwitcherProps) {
  const group = useRef<HTMLDivElement>(null);
  const siblings = thread.siblings(turn).value?.[of];
  useLayoutEffect(() => {
    const isNext = nextFocus?.thread === thread && nextFocus.number === turn.number && nextFocus.of === of;
    if (!siblings || !nextFocus || !isNext) return;
    const button = group.current?.querySelector<HTMLElement>(`[data-by="${nextFocus.by}"]`);
    // The pressed button is gone, and the thread may have taken its focus; the user may have moved it since.
    const isFree = [document.body, button?.closest(".thread")].includes(document.activeElement as HTMLElement);
    if (isFree) button?.focus({ preventScroll: true });
    nextFocus = null;
  }, [siblings]);
  if (!siblings) return null;
  const { at, branches } = siblings;
  // Switching is not possible while turns are pending.
  const canSwitch = session.mayWrite && thread.pending.value.length === 0;
  const step = (by: -1 | 1, label: string, Icon: typeof LeftIcon) => {
    const branch = branches[at + by];
    return (
      <button
        type="button"
        class="quiet-button icon-only small"
        data-by={by}
        aria-label={label}
        title={label}
        aria-disabled={branch === undefined || !canSwitch}
        onClick={() => {
          if (branch === undefined || !canSwitch) return;
          nextFocus = { thread, of, number: turn.number, by };
          void thread.switch(branch, turn.number);
        }}
      >
        <Icon size={16} />
      </button>
    );
  };
  return (
    <div ref={group} class="siblings" role="group" aria-label={strings.turn.versions[of]}>
      {step(-1, strings.turn.previousVersion, LeftIcon)}
      <span aria-label={strings.turn.version(at + 1, branches.length)} role="img">
        {at + 1}/{branches.length}
      </span>
      {step(1, strings.turn.nextVersion, RightIcon)}
    </div>
  );
}
