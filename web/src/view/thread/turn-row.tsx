/** One turn, pending or committed: the same element shows it before and after its commit. */

import { useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Turn } from "turnledger";
import type { Session } from "../../session/session";
import { inputParts, partsOf } from "../../thread/turn-parts";
import type { ThreadRow } from "../../thread/thread-rows";
import type { Thread } from "../../thread/thread";
import { AnswerActions, MessageActions } from "./turn-actions";
import { AnswerView } from "./answer";
import { EditForm } from "./edit-form";
import { MessageView } from "./message";
import { EndStateView, PendingStateView } from "./turn-state";
import { strings } from "../../strings";

interface RowProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly row: ThreadRow;
  readonly before: Turn | null;
  readonly after: Turn | null;
  readonly isLast: boolean;
}

export function TurnRow({ session, thread, row, before, after, isLast }: RowProps) {
  const { turn, pending } = row;
  const article = useRef<HTMLElement>(null);
  // A turn that the user saw streaming in is not laid out again.
  const wasRunning = useRef(pending !== null);
  const isEditing = useSignal(false);
  useEditButtonFocus(article, isEditing.value);
  const input = pending?.input.value;
  const { language } = strings;
  const parts = useMemo(
    () => turn && partsOf(turn, before ?? undefined, after ?? undefined),
    [turn, before, after, language],
  );
  const message = useMemo(() => parts?.input ?? inputParts(input ?? []), [parts, input, language]);
  return (
    <article
      ref={article}
      class="turn"
      data-row={row.name}
      data-turn={turn?.id}
      data-kind={turn?.kind}
      data-state={pending?.state.value}
      data-fresh={wasRunning.current ? "" : undefined}
      data-last={isLast ? "" : undefined}
    >
      {turn && isEditing.value ? (
        <EditForm session={session} thread={thread} turn={turn} close={() => (isEditing.value = false)} />
      ) : (
        <div class="question">
          <MessageView parts={message} />
          {turn && (
            <MessageActions {...{ session, thread, turn, parts: message, edit: () => (isEditing.value = true) }} />
          )}
        </div>
      )}
      <div class="answer">
        <AnswerView parts={parts?.output ?? null} pending={pending} />
        {turn && <EndStateView {...{ session, thread, turn, isLast }} />}
        {pending && <PendingStateView session={session} thread={thread} pending={pending} />}
        {turn && <AnswerActions {...{ session, thread, turn, parts: parts?.output ?? [], isLast }} />}
      </div>
    </article>
  );
}

/** Return the focus to the edit button after an edit. */
function useEditButtonFocus(article: RefObject<HTMLElement | null>, isEditing: boolean): void {
  const wasEditing = useRef(false);
  useLayoutEffect(() => {
    if (wasEditing.current && !isEditing) article.current?.querySelector<HTMLElement>("[data-edit]")?.focus();
    wasEditing.current = isEditing;
  }, [isEditing]);
}
