/**
 * Every error that the client throws, as one tree: the one of the Python package, by the same names, without those that
 * no server tells. Programs match on the class, or on `code`.
 */

import type { ChatInfo } from "./shapes.js";

/** What a server says of an error. */
export interface ErrorDetails {
  readonly error?: {
    readonly code?: string | number | null;
    readonly message?: string;
    readonly type?: string;
    /** Which part of the request it is about. */
    readonly param?: string | null;
  };
  /** Of a RevisionConflict: the chat as it is by now. */
  readonly chat?: ChatInfo;
}

/** What is known of an error besides its code and its words. */
export interface ErrorFacts {
  status?: number | null;
  requestId?: string | null;
  details?: ErrorDetails;
  isRetryable?: boolean;
  retryAfter?: number | null;
  idempotencyKey?: string | null;
  cause?: unknown;
}

/** Turnledger could not do what was asked. */
export class TurnledgerError extends Error {
  /** The word that programs match on, as the server says it. */
  declare readonly code: string;
  /** The HTTP status; null where no server spoke, or where it spoke within a stream. */
  declare readonly status: number | null;
  /** Under which the server's log tells more; null where no server spoke. */
  declare readonly requestId: string | null;
  /** The whole answer: `error`, and of a revision conflict the `chat` as it is by now. */
  declare readonly details: ErrorDetails;
  /** Whether the same request may succeed later. By then the client has tried as often as it may. */
  declare readonly isRetryable: boolean;
  /** Milliseconds after which it is worth another try, where the server says so. */
  declare readonly retryAfter: number | null;
  /** Ask again with it, and what was done is not done twice; null where there is none. */
  declare idempotencyKey: string | null;

  constructor(code: string, message: string, facts: ErrorFacts = {}) {
    super(message);
    Object.assign(this, {
      code,
      details: {},
      isRetryable: false,
      status: null,
      requestId: null,
      retryAfter: null,
      idempotencyKey: null,
      ...facts,
    });
  }
}

/** What was asked cannot be done; nothing changed. */
export class InvalidInput extends TurnledgerError {}
export class InvalidId extends InvalidInput {}
export class NoNewInput extends InvalidInput {}
export class MissingToolResults extends InvalidInput {}
export class MalformedItems extends InvalidInput {}
export class EmptyTurn extends InvalidInput {}
export class IdempotencyMismatch extends InvalidInput {}

/** The id or conversation_key names nothing that can be continued. */
export class ConversationUnavailable extends TurnledgerError {}
export class ConversationNotFound extends ConversationUnavailable {}
export class ConversationDeleted extends ConversationUnavailable {}
export class ConversationExpired extends ConversationUnavailable {}

/** The turn or branch is not there to go on from. */
export class HistoryUnavailable extends TurnledgerError {}
export class TurnNotFound extends HistoryUnavailable {}
export class BranchNotFound extends HistoryUnavailable {}
export class HistoryDiverged extends HistoryUnavailable {}

/** Another turn holds the lane. */
export class ConversationBusy extends TurnledgerError {}
export class QueueFull extends ConversationBusy {}
export class WaitEnded extends ConversationBusy {}

/** The owner stores as much as may be. */
export class StorageFull extends TurnledgerError {}
/** As many event streams are read as may be. */
export class TooManyReaders extends TurnledgerError {}
/** Title or metadata changed since they were read; `details.chat` is how they are by now. */
export class RevisionConflict extends TurnledgerError {}

/** What was asked of a token cannot be; nothing changed. */
export class TokenRefused extends TurnledgerError {}
export class TokenNotFound extends TokenRefused {}
export class TokenEnded extends TokenRefused {}
export class TokenTooWide extends TokenRefused {}
export class TooManyTokens extends TokenRefused {}

/** What was asked of a share link cannot be; nothing changed. */
export class ShareRefused extends TurnledgerError {}
export class ShareNotFound extends ShareRefused {}
export class LinkNotValid extends ShareRefused {}
export class TooManyShares extends ShareRefused {}
export class TooManyVisitors extends ShareRefused {}

/** Who is let in has changed since it was looked up. */
export class AdmissionMoved extends TurnledgerError {}

/** The turn is final, and not as this caller hoped. */
export class TurnEnded extends TurnledgerError {}
/** It failed, and the history is as it was; `code` is why. */
export class TurnFailed extends TurnEnded {}
/** It was stopped, and nothing of it is kept. */
export class TurnStopped extends TurnEnded {}
export class Superseded extends TurnEnded {}

/** The model gave no whole answer; the history is as it was. */
export class ModelError extends TurnledgerError {}
export class ModelUnavailable extends ModelError {}
export class ModelTimeout extends ModelError {}
export class ModelRefused extends ModelError {}
export class MalformedAnswer extends ModelError {}

/** The store could not do it; nothing was written. */
export class StoreError extends TurnledgerError {}
export class StoreUnavailable extends StoreError {}
export class StoreFull extends StoreError {}
export class StoreReadOnly extends StoreError {}
export class StoreCorrupt extends StoreError {}
/** The one exception: the write may or may not be there. */
export class OutcomeUnknown extends StoreError {}
export class CommitOutcomeUnknown extends OutcomeUnknown {}

export class LedgerElsewhere extends TurnledgerError {}
export class LedgerClosed extends TurnledgerError {}

/** The server said no, in a word that this version has no class for. */
export class RequestFailed extends TurnledgerError {}
/** It lets nobody in with this token, or not to this. */
export class NotAdmitted extends RequestFailed {}
/** It has as much open as it may have. */
export class TooManyRequests extends RequestFailed {}
/** It cannot be reached, is about to end, or gave no whole answer, after all retries. */
export class ServerUnavailable extends RequestFailed {}
