/** A failed turn: why it failed, and what to do. */

import { safeText, safeProse } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import type { FailedTurn, Thread } from "../../thread/thread";
import { CloseIcon, RetryIcon, StopIcon, WarningIcon } from "../icons";
import { strings } from "../../strings";

interface FailureProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly failed: FailedTurn;
}

export function FailureCard({ session, thread, failed }: FailureProps) {
  const { message, detail, isStopped, isLocal, replaces, text } = failed;
  // The composer takes it back, or offers it beside a newer draft, unless something else clears it.
  const { text: written, offered } = session.composers.of(thread);
  const isBack = isLocal && replaces === null && written.value !== "" && offered.value === null;
  return (
    <section
      class={isStopped ? "card failure" : "card bad failure"}
      role="group"
      aria-label={strings.failure.card}
      data-failed={failed.code}
    >
      <p class="failure-reason">
        {isStopped ? <StopIcon size={16} /> : <WarningIcon size={16} />}
        <strong>{safeText(message)}</strong>
      </p>
      {detail && (
        <p class="quiet-text" dir="auto">
          {safeText(detail)}
        </p>
      )}
      {!isStopped && (
        <p class="quiet-text">
          {isBack ? strings.failure.unchangedWithDraft : strings.failure.unchanged}
        </p>
      )}
      {!isBack && text && (
        <p class="failure-text" dir="auto">
          {safeProse(text)}
        </p>
      )}
      <div class="failure-actions">
        {session.mayRun && (
          <button type="button" class="button" onClick={() => void thread.retry()}>
            <RetryIcon size={16} />
            {isStopped ? strings.failure.sendAgain : strings.failure.retry}
          </button>
        )}
        <button type="button" class="quiet-button" onClick={() => thread.forgetFailure()}>
          <CloseIcon size={16} />
          {strings.failure.dismiss}
        </button>
      </div>
    </section>
  );
}
