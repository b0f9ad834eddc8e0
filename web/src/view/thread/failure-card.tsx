/** A failed turn: why it failed, and what to do. */

import { safeText, safeProse } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import type { FailedTurn, Thread } from "../../thread/thread";
import { CloseIcon, RetryIcon, StopIcon, WarningIcon } from "../icons";

interface Given {
  readonly session: Session;
  readonly thread: Thread;
  readonly failed: FailedTurn;
}

export function FailureCard({ session, thread, failed }: Given) {
  const { message, detail, isStopped, isHere, replaces, text } = failed;
  return (
    <section
      class={isStopped ? "card failure" : "card bad failure"}
      role="group"
      aria-label="What did not happen"
      data-failed={failed.code}
    >
      <p class="failure-words">
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
          {isHere && replaces === null
            ? "The chat is as it was before, and your message is back where you wrote it."
            : "The chat is as it was before."}
        </p>
      )}
      {(!isHere || replaces !== null) && text && (
        <p class="failure-text" dir="auto">
          {safeProse(text)}
        </p>
      )}
      <div class="failure-actions">
        {session.mayRun && (
          <button type="button" class="button" onClick={() => void thread.retry()}>
            <RetryIcon size={16} />
            {isStopped ? "Ask again" : "Retry"}
          </button>
        )}
        <button type="button" class="quiet-button" onClick={() => thread.forgetFailure()}>
          <CloseIcon size={16} />
          Dismiss
        </button>
      </div>
    </section>
  );
}
