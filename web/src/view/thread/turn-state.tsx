/** The state of a pending turn as text, and how a turn ended that did not complete, or without text. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import type { Turn } from "turnledger";
import type { Session } from "../../session/session";
import type { PendingTurn } from "../../thread/pending-turn";
import { countBefore } from "../../thread/pending-turns";
import type { Thread } from "../../thread/thread";
import { isEmptyAnswer } from "../../thread/turn-parts";
import { namedItems } from "../../thread/turn-items";
import { formatDuration } from "../../thread/turn-usage";
import { CloseIcon, HideIcon, InfoIcon, OfflineIcon, QueueIcon, StopIcon, WarningIcon } from "../icons";
import { useOffline } from "../connection";
import { strings } from "../../strings";

/** Seconds after which the elapsed time is shown. */
const SHOW_ELAPSED_AFTER = 3;

interface PendingProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly pending: PendingTurn;
}

export function PendingStateView({ session, thread, pending }: PendingProps) {
  const isOffline = useOffline(session).value || pending.isOffline.value;
  const state = pending.state.value;
  const before = countBefore(thread.pending.value, pending);
  const isWaiting = state === "queued" || (state === "sending" && before > 0 && !isOffline);
  const cancel = session.mayRun && <CancelButton thread={thread} pending={pending} />;
  return (
    <div class="turn-state">
      {pending.isRestarted.value && (
        <Line icon={<InfoIcon size={16} />}>{strings.turn.restarted}</Line>
      )}
      {!pending.isLocal && <Line icon={<InfoIcon size={16} />}>{strings.turn.sentElsewhere}</Line>}
      {state === "sending" && isOffline && (
        <Line icon={<OfflineIcon size={16} />}>
          {strings.turn.sendingOffline} {cancel}
        </Line>
      )}
      {state === "sending" && !isWaiting && !isOffline && <Line icon={<Spinner />}>{strings.turn.sending}</Line>}
      {isWaiting && before > 0 && (
        <Line icon={<QueueIcon size={16} />}>
          {strings.turn.queued(before)} {cancel}
        </Line>
      )}
      {isWaiting && before === 0 && (
        <Line icon={<Spinner />}>
          {strings.turn.starting} {cancel}
        </Line>
      )}
      {state === "running" && isOffline && (
        <Line icon={<OfflineIcon size={16} />}>{strings.turn.answeringOffline}</Line>
      )}
      {state === "running" && !isOffline && (
        <Line icon={<Spinner />}>
          {strings.turn.answering} <Elapsed pending={pending} />
        </Line>
      )}
      {state === "stopping" && <Line icon={<Spinner />}>{strings.turn.stopping}</Line>}
    </div>
  );
}

function CancelButton({ thread, pending }: Omit<PendingProps, "session">) {
  return (
    <button type="button" class="quiet-button small" onClick={() => void thread.stop({ which: pending })}>
      <CloseIcon size={14} />
      {strings.turn.cancel}
    </button>
  );
}

interface EndProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly turn: Turn;
  readonly isLast: boolean;
}

/** The state of a turn that did not complete, or has no visible answer. */
export function EndStateView({ session, thread, turn, isLast }: EndProps) {
  const hidden = useMemo(() => namedItems(turn).filter(({ isHidden }) => isHidden), [turn, strings.language]);
  const isEmpty = useMemo(() => isEmptyAnswer(turn), [turn]);
  const isAtLimit = turn.details["finish_reason"] === "length";
  if (turn.kind === "completed" && hidden.length === 0 && !isEmpty && !isAtLimit) return null;
  const isWhole = turn.hiddenFromModel.length === turn.input.length + turn.output.length;
  return (
    <div class="turn-state">
      {isEmpty && (
        <Line icon={<InfoIcon size={16} />}>
          {isAtLimit ? strings.turn.emptyAtLimit : strings.turn.empty}
        </Line>
      )}
      {isAtLimit && !isEmpty && (
        <Line icon={<InfoIcon size={16} />}>
          {strings.turn.cutAtLimit}
          {isLast && session.mayRun && thread.failed.value === null && <ContinueButton thread={thread} />}
        </Line>
      )}
      {turn.kind === "interrupted" && <Line icon={<StopIcon size={16} />}>{strings.turn.interrupted}</Line>}
      {turn.kind === "settled" && <Line icon={<WarningIcon size={16} />}>{strings.turn.failedWithEffects}</Line>}
      {hidden.length > 0 && (
        <Line icon={<HideIcon size={16} />}>
          {isWhole
            ? strings.turn.isHiddenFromModel
            : strings.turn.isPartlyHiddenFromModel(hidden.map(({ name }) => name))}
        </Line>
      )}
    </div>
  );
}

function ContinueButton({ thread }: { thread: Thread }) {
  return (
    <button
      type="button"
      class="button small continue"
      onClick={() => void thread.send(strings.turn.continueMessage)}
    >
      {strings.turn.continue}
    </button>
  );
}

function Line({ icon, children }: { icon: ComponentChildren; children: ComponentChildren }) {
  return (
    <p class="state-line">
      {icon}
      <span>{children}</span>
    </p>
  );
}

function Spinner() {
  return <span class="spinner" aria-hidden="true" />;
}

function Elapsed({ pending }: { pending: PendingTurn }) {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const since = pending.startedAt.value;
  const seconds = since === null ? 0 : Math.floor((now.value - since) / 1_000);
  return seconds < SHOW_ELAPSED_AFTER ? null : <span class="elapsed">{formatDuration(seconds * 1_000, 0)}</span>;
}
