/** A chat without turns. */

import type { Experiments } from "../../first-run/experiments";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { TemporaryChatSwitch } from "../unkept";
import { WelcomeView } from "./first-run";
import { strings } from "../../strings";

/** Whether a thread is empty: no turn, none pending or failed, and no problem. */
export function isEmptyChat(thread: Thread): boolean {
  return (
    thread.isLoaded.value &&
    thread.problem.value === null &&
    thread.failed.value === null &&
    thread.turns.value.length === 0 &&
    thread.pending.value.length === 0
  );
}

interface Props {
  readonly session: Session;
  readonly thread: Thread;
  readonly experiments: Experiments;
}

export function EmptyChatView({ session, thread, experiments }: Props) {
  return (
    <div class="thread empty">
      {session.mayRun && thread.isKept && experiments.isOpen.value ? (
        <WelcomeView session={session} thread={thread} experiments={experiments} />
      ) : (
        <p class="greeting">{session.mayRun ? strings.thread.emptyChat : strings.thread.noMessages}</p>
      )}
      <TemporaryChatSwitch session={session} thread={thread} />
    </div>
  );
}
