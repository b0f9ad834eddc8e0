/** Announce to screen readers that an answer began, completed or failed. They read its text when they want to. */

import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Session } from "../../session/session";
import type { PendingTurn } from "../../thread/pending-turn";
import type { Thread } from "../../thread/thread";
import { strings } from "../../strings";

export function useAnnouncements(session: Session, thread: Thread): void {
  useEffect(() => {
    let before: readonly PendingTurn[] = thread.pending.peek();
    const started = new Set<PendingTurn>();
    const releases = [
      effect(() => {
        const now = thread.pending.value;
        for (const pending of now) {
          if (pending.state.value !== "running" || started.has(pending)) continue;
          started.add(pending);
          session.notices.announce(pending.isLocal ? strings.turn.answering : strings.turn.answeringElsewhere);
        }
        const ended = before.filter((pending) => !now.includes(pending));
        before = now;
        if (ended.length > 0 && !thread.failed.peek()) session.notices.announce(strings.turn.answered);
      }),
      effect(() => {
        const failed = thread.failed.value;
        if (failed) session.notices.announce(failed.isStopped ? failed.message : strings.turn.failed(failed.message));
      }),
    ];
    return () => releases.forEach((release) => release());
  }, [thread]);
}
