/** What those hear of a chat who do not see it: that an answer began, that it is there, that it failed. No single word
 * of it: they read it when they want to. */

import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Session } from "../../session/session";
import type { Running } from "../../thread/pending-turn";
import type { ShownThread } from "../../thread/thread";

export function useAnnouncements(session: Session, thread: ShownThread): void {
  useEffect(() => {
    let before: readonly Running[] = thread.running.peek();
    const begun = new Set<Running>();
    const releases = [
      effect(() => {
        const now = thread.running.value;
        for (const running of now) {
          if (running.state.value !== "running" || begun.has(running)) continue;
          begun.add(running);
          session.notices.say(running.isHere ? "Answering…" : "An answer is being written, asked for elsewhere.");
        }
        const ended = before.filter((running) => !now.includes(running));
        before = now;
        if (ended.length > 0 && !thread.failed.peek()) session.notices.say("The answer is complete.");
      }),
      effect(() => {
        const failed = thread.failed.value;
        if (failed) session.notices.say(failed.isStopped ? failed.message : `That failed. ${failed.message}`);
      }),
    ];
    return () => releases.forEach((release) => release());
  }, [thread]);
}
