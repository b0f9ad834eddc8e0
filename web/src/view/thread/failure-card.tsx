/** What never happened: why, and what can be done about it. */

import { harmless, harmlessProse } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import type { Failed, ShownThread } from "../../thread/thread";
import { CloseIcon, RetryIcon, StopIcon, WarningIcon } from "../icons";

interface Given {
  readonly session: Session;
  readonly thread: ShownThread;
  readonly failed: Failed;
}

export function FailureView({ session, thread, failed }: Given) {
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
        <strong>{harmless(message)}</strong>
      </p>
      {detail && (
        <p class="quiet-text" dir="auto">
          {harmless(detail)}
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
          {harmlessProse(text)}
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
