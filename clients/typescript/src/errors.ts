/** Every error that the client throws, as one tree: that of the Python package, by the same names, without errors that
 * no server sends. Match on the class, or on `code`. */

import type { ChatInfo } from "./shapes.js";

/** The body of a server's error. */
export interface ErrorDetails {
  readonly error?: {
    readonly code?: string | number | null;
    readonly message?: string;
    readonly type?: string;
    /** The part of the request that is wrong. */
    readonly param?: string | null;
  };
  /** Of a RevisionConflict: the current chat. */
  readonly chat?: ChatInfo;
}

export interface ErrorFacts {
  status?: number | null;
  requestId?: string | null;
  details?: ErrorDetails;
  isRetryable?: boolean;
  retryAfter?: number | null;
  idempotencyKey?: string | null;
  cause?: unknown;
}

/** Turnledger could not carry out the operation. */
export class TurnledgerError extends Error {
  /** For programs to match on, as sent by the server. */
  declare readonly code: string;
  /** The HTTP status; null without a response, or within a stream. */
  declare readonly status: number | null;
  /** The id of the request in the server's log; null without a response. */
  declare readonly requestId: string | null;
  /** The whole body: `error`, and for a revision conflict the current `chat`. */
  declare readonly details: ErrorDetails;
  /** Whether the same request may succeed later. The client's own retries have failed. */
  declare readonly isRetryable: boolean;
  /** Milliseconds before another try, if the server names them. */
  declare readonly retryAfter: number | null;
  /** Repeat the request under it, and it is carried out once; null if there is none. */
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

/** The request is not valid; nothing changed. */
export class InvalidInput extends TurnledgerError {}
export class InvalidId extends InvalidInput {}
export class NoNewInput extends InvalidInput {}
export class MissingToolResults extends InvalidInput {}
export class MalformedItems extends InvalidInput {}
export class EmptyTurn extends InvalidInput {}
export class IdempotencyMismatch extends InvalidInput {}

/** The id or conversation_key names no usable conversation. */
export class ConversationUnavailable extends TurnledgerError {}
export class ConversationNotFound extends ConversationUnavailable {}
export class ConversationDeleted extends ConversationUnavailable {}
export class ConversationExpired extends ConversationUnavailable {}

/** The turn or branch cannot be continued from. */
export class HistoryUnavailable extends TurnledgerError {}
export class TurnNotFound extends HistoryUnavailable {}
export class BranchNotFound extends HistoryUnavailable {}
export class HistoryDiverged extends HistoryUnavailable {}

/** Another turn holds the lane. */
export class ConversationBusy extends TurnledgerError {}
export class QueueFull extends ConversationBusy {}
export class WaitEnded extends ConversationBusy {}

/** The owner's storage quota is reached. */
export class StorageFull extends TurnledgerError {}
/** The limit of event readers is reached. */
export class TooManyReaders extends TurnledgerError {}
/** Title or metadata changed after they were read; `details.chat` has the current ones. */
export class RevisionConflict extends TurnledgerError {}

/** The token does not permit it; nothing changed. */
export class TokenRefused extends TurnledgerError {}
export class TokenNotFound extends TokenRefused {}
export class TokenEnded extends TokenRefused {}
export class TokenTooWide extends TokenRefused {}
export class TooManyTokens extends TokenRefused {}

/** The share link does not permit it; nothing changed. */
export class ShareRefused extends TurnledgerError {}
export class ShareNotFound extends ShareRefused {}
export class LinkNotValid extends ShareRefused {}
export class TooManyShares extends ShareRefused {}
export class TooManyVisitors extends ShareRefused {}

/** Tokens changed after the caller was authenticated. */
export class AdmissionMoved extends TurnledgerError {}

/** The turn ended in another way than by a commit. */
export class TurnEnded extends TurnledgerError {}
/** It failed, and the history is unchanged; `code` is the reason. */
export class TurnFailed extends TurnEnded {}
/** It was stopped, and nothing of it is kept. */
export class TurnStopped extends TurnEnded {}
export class Superseded extends TurnEnded {}

/** The model gave no complete answer; the history is unchanged. */
export class ModelError extends TurnledgerError {}
export class ModelUnavailable extends ModelError {}
export class ModelTimeout extends ModelError {}
export class ModelRefused extends ModelError {}
export class MalformedAnswer extends ModelError {}

/** The store failed; nothing was written. */
export class StoreError extends TurnledgerError {}
export class StoreUnavailable extends StoreError {}
export class StoreFull extends StoreError {}
export class StoreReadOnly extends StoreError {}
export class StoreCorrupt extends StoreError {}
/** The exception: the write may have succeeded. */
export class OutcomeUnknown extends StoreError {}
export class CommitOutcomeUnknown extends OutcomeUnknown {}

export class LedgerElsewhere extends TurnledgerError {}
export class LedgerClosed extends TurnledgerError {}

/** The server refused, with a code that this version has no class for. */
export class RequestFailed extends TurnledgerError {}
/** The server refuses this token, or does not authorize it for this. */
export class NotAdmitted extends RequestFailed {}
/** A limit of the server is reached. */
export class TooManyRequests extends RequestFailed {}
/** The server cannot be reached, is shutting down, or gave no complete response, after all retries. */
export class ServerUnavailable extends RequestFailed {}
