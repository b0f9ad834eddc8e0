/** A chat without turns: a greeting, the composer in the middle, and what to begin with. */

import type { Experiments } from "../../first-run/experiments";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { Mark } from "../icons";
import { TemporaryChatSwitch } from "../unkept";
import { ExperimentsView, WelcomeView } from "./first-run";
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

/** The greeting above the composer. */
export function EmptyChatView({ session, thread, experiments }: Props) {
  return (
    <div class="empty">
      <Mark size={40} />
      {isWelcome(session, thread, experiments) ? (
        <WelcomeView />
      ) : (
        <p class="greeting">{session.mayRun ? strings.thread.emptyChat : strings.thread.noMessages}</p>
      )}
    </div>
  );
}

/** Below the composer: what to begin with. */
export function EmptyChatFoot({ session, thread, experiments }: Props) {
  return (
    <div class="empty-foot">
      {isWelcome(session, thread, experiments) && <ExperimentsView thread={thread} experiments={experiments} />}
      <TemporaryChatSwitch session={session} thread={thread} />
    </div>
  );
}

function isWelcome(session: Session, thread: Thread, experiments: Experiments): boolean {
  return session.mayRun && thread.isKept && experiments.isOpen.value;
}
