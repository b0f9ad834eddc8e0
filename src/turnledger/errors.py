"""Every error Turnledger raises, as one tree.

TurnledgerError
├── InvalidInput                the request is not valid; nothing changed
│   ├── InvalidId
│   ├── NoNewInput
│   ├── MissingToolResults
│   ├── MalformedItems
│   ├── EmptyTurn
│   └── IdempotencyMismatch
├── ConversationUnavailable     the id or conversation_key names no usable conversation
│   ├── ConversationNotFound
│   ├── ConversationDeleted
│   └── ConversationExpired
├── HistoryUnavailable          the turn or branch cannot be continued from
│   ├── TurnNotFound
│   ├── BranchNotFound
│   └── HistoryDiverged
├── ConversationBusy            another turn holds the lane
│   ├── QueueFull
│   └── WaitEnded
├── StorageFull                 the owner's storage quota is reached
├── TooManyReaders              the limit of event readers is reached
├── RevisionConflict            title or metadata changed after they were read
├── TokenRefused                the token does not permit it; nothing changed
│   ├── TokenNotFound
│   ├── TokenEnded
│   ├── TokenTooWide
│   └── TooManyTokens
├── ShareRefused                the share link does not permit it; nothing changed
│   ├── ShareNotFound
│   ├── LinkNotValid
│   ├── TooManyShares
│   └── TooManyVisitors
├── AdmissionMoved              tokens changed after the caller was authenticated
├── TurnEnded                   the turn ended in another way than by this call's commit
│   ├── TurnReplayed            it was committed before; holds its answer
│   ├── TurnAttached            it is still running, and can be followed
│   ├── TurnFailed
│   ├── TurnStopped
│   └── Superseded
├── ModelError                  the model gave no complete answer; the history is unchanged
│   ├── ModelUnavailable
│   ├── ModelTimeout
│   ├── ModelRefused
│   └── MalformedAnswer
├── StoreError                  the store failed; nothing was written
│   ├── StoreUnavailable
│   ├── StoreFull
│   ├── StoreReadOnly
│   ├── StoreCorrupt
│   ├── NotAStore
│   ├── StoreTooNew
│   ├── UnsafeSqlite
│   └── OutcomeUnknown          the exception: the write may have succeeded
│       └── CommitOutcomeUnknown
├── RequestFailed               raised by clients only: the server refused, or is unreachable
│   ├── NotAdmitted
│   ├── TooManyRequests
│   └── ServerUnavailable
├── LedgerElsewhere             opened in another process or event loop
└── LedgerClosed

The docstring of a class is its message when none is given; `code`, its name in snake case, is the word that
programs match on.
A cancellation stays asyncio's CancelledError; `turn_of` returns the turn that it left in the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from turnledger.model.ids import ConversationId, TurnId
    from turnledger.model.turn import Turn


class TurnledgerError(Exception):
    """Turnledger could not carry out the operation. Check the log."""

    code: ClassVar[str] = "error"
    status: int | None = None
    request_id: str | None = None
    """The HTTP status of a server's response, and the id of the request in its log."""
    earlier: tuple[TurnId | None, ConversationId] | None = None
    """The turn that holds the idempotency_key and its conversation, if that turn is the reason."""
    param: str | None = None
    """The field or parameter of a request that the error is about, if it is about one."""

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.code = "".join(f"_{each.lower()}" if each.isupper() else each for each in cls.__name__)[1:]

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class InvalidInput(TurnledgerError):
    """The request is not valid. Nothing changed; correct it."""

    def __init__(self, message: str | None = None, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidId(InvalidInput):
    """That is not an id that Turnledger issued. Copy it completely."""


class NoNewInput(InvalidInput):
    """A turn needs at least one user message that is not blank, or the results of pending tool calls."""


class MissingToolResults(InvalidInput):
    """Some pending tool calls have no result. Send all of them, or a user message that moves on."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        # The ids come from models: any length and number is possible.
        shown = [*(each[:80] for each in missing[:10]), *(["…"] if len(missing) > 10 else [])]
        super().__init__(
            f"No result for the pending tool call{'s' if len(missing) > 1 else ''} {', '.join(shown)}. "
            "Send all results together, or a user message to skip them."
        )
        self.missing = missing


class MalformedItems(InvalidInput):
    """The items do not form a history that a model accepts. Correct them and send them again."""


class EmptyTurn(InvalidInput):
    """The block was left without any output, so there is nothing to commit. Emit text or add an item."""


class IdempotencyMismatch(InvalidInput):
    """This idempotency_key was used with another request (conversation, messages or parameters). Resend it
    unchanged, or use a new key."""


class ConversationUnavailable(TurnledgerError):
    """That conversation cannot be continued. Start a new one."""


class ConversationNotFound(ConversationUnavailable):
    """No conversation has that id or conversation_key. Check it."""


class ConversationDeleted(ConversationUnavailable):
    """That conversation was deleted. Start a new one."""

    def __init__(self, message: str | None = None, *, restorable_until: int | None = None) -> None:
        if message is None and restorable_until is not None:
            until = datetime.fromtimestamp(restorable_until / 1000, UTC)
            message = (
                "That conversation was deleted. It can be restored until "
                f"{until:%Y-%m-%d %H:%M} UTC; or start a new one."
            )
        super().__init__(message)
        self.restorable_until = restorable_until
        """Milliseconds since 1970; None if it was purged."""


class ConversationExpired(ConversationUnavailable):
    """That conversation has expired and its history is gone. Start a new one."""


class HistoryUnavailable(TurnledgerError):
    """That part of the history is not available. Read the conversation again."""


class TurnNotFound(HistoryUnavailable):
    """There is no such turn on the branch that this conversation shows. Read its turns again."""


class BranchNotFound(HistoryUnavailable):
    """There is no such branch in this conversation. List its branches."""


class HistoryDiverged(HistoryUnavailable):
    """The history sent is not the stored one. Read it again, or let it become a branch."""


class ConversationBusy(TurnledgerError):
    """Another turn is running on this conversation. Wait for it, or choose another on_busy policy."""


class QueueFull(ConversationBusy):
    """Too many turns are waiting for this conversation. Try again later."""


class WaitEnded(ConversationBusy):
    """The turns before this one took too long. Nothing was run; try again later."""


class StorageFull(TurnledgerError):
    """The storage quota of this owner is reached. Purge conversations, then try again. Nothing was run."""

    def __init__(self, limit: int | None, unit: str = "bytes") -> None:
        """`limit`: None where the caller must not learn it."""
        quota = "Storage quota" if limit is None else f"Storage quota of {limit} {unit}"
        super().__init__(f"{quota} reached. Purge conversations, then try again. Nothing was run.")
        self.limit = limit


class TooManyReaders(TurnledgerError):
    """This process has too many readers of events. Close some, or try again later."""


class RevisionConflict(TurnledgerError):
    """Title or metadata changed since they were read. Read again, then update."""

    def __init__(self, current: int) -> None:
        super().__init__(f"The conversation is now at revision {current}. Read it again, then update.")
        self.current = current


class TokenRefused(TurnledgerError):
    """This token does not permit that. Nothing changed; use another token."""


class TokenNotFound(TokenRefused):
    """There is no token with that id. List the tokens."""


class TokenEnded(TokenRefused):
    """The token was revoked or has expired. Use another one."""


class TokenTooWide(TokenRefused):
    """A token cannot grant scopes it lacks. Ask for less, or use another token."""


class TooManyTokens(TokenRefused):
    """This owner has reached the limit of tokens. Revoke some first."""


class ShareRefused(TurnledgerError):
    """This share link does not permit that. Nothing changed; use another link."""


class ShareNotFound(ShareRefused):
    """There is no share link with that id. List the links."""


class LinkNotValid(ShareRefused):
    """This link is invalid, used up, expired or revoked. Ask its sender for a new one."""


class TooManyShares(ShareRefused):
    """This owner has reached the limit of share links. Revoke some first."""


class TooManyVisitors(ShareRefused):
    """Too many visitors are using this link. Try again in a minute."""


class AdmissionMoved(TurnledgerError):
    """Tokens changed after authentication. Authenticate again; nothing was run."""


class TurnEnded(TurnledgerError):
    """The turn has ended. Start a new one."""


class TurnReplayed(TurnEnded):
    """A turn with this idempotency_key is already committed; `turn` holds it. Nothing was run again."""

    def __init__(self, turn: Turn, conversation: ConversationId) -> None:
        super().__init__()
        self.turn = turn
        self.conversation = conversation


class TurnAttached(TurnEnded):
    """The same request is already running as `turn`. Follow its events, or wait for its outcome."""

    def __init__(self, turn: TurnId, conversation: ConversationId) -> None:
        super().__init__()
        self.turn = turn
        """The id of the running attempt."""
        self.conversation = conversation


class TurnFailed(TurnEnded):
    """The turn failed. The history is unchanged; try again."""


class TurnStopped(TurnEnded):
    """The turn was stopped. `turn` holds what was kept of it, or None when it was discarded."""

    def __init__(self, turn: Turn | None = None) -> None:
        super().__init__(f"The turn was stopped and {'kept' if turn else 'discarded'}. Start a new turn.")
        self.turn = turn


class Superseded(TurnEnded):
    """Another attempt took over this conversation; this one can no longer write. Retry the turn."""


class ContextSizes(NamedTuple):
    """Tokens, as a model states them; 0 where it does not."""

    limit: int = 0
    prompt: int = 0
    answer: int = 0


class ModelError(TurnledgerError):
    """The model gave no complete answer. The history is unchanged; try again."""

    context_exceeded: ContextSizes | None = None
    """Set if the request was too long for the model's context."""
    refuses_repeated_roles: bool = False
    """Whether the model refuses messages whose roles do not alternate."""
    should_retry: bool = True
    """Whether the same request may soon succeed. False: it or the settings must change, or it was retried."""
    retry_after: float | None = None
    """Seconds to wait, if the model stated them."""

    def __init__(self, message: str | None = None, *, should_retry: bool | None = None) -> None:
        super().__init__(message)
        if should_retry is not None:
            self.should_retry = should_retry


class ModelUnavailable(ModelError):
    """The model cannot be reached, or stopped early. Try again."""


class ModelTimeout(ModelError):
    """The model took too long to answer. Try again, or allow it more time."""


TEMPORARY = frozenset({408, 409, 425, 429})
"""Statuses of refusals that may pass by themselves."""


class ModelRefused(ModelError):
    """The model refused the request; `error` says why. Change it, or wait `retry_after` seconds if set."""

    status: int

    def __init__(
        self, status: int, error: Mapping[str, Any] | None = None, retry_after: float | None = None
    ) -> None:
        reason = " ".join(str((error or {}).get("message") or "").split()).rstrip(".")
        message = f"The model refused the request with status {status}{': ' if reason else ''}{reason}."
        if not reason:
            message += " Try again later." if status in TEMPORARY else " Change the request or the model."
        super().__init__(message, should_retry=status in TEMPORARY)
        self.status = status
        self.error: Mapping[str, Any] = error or {}
        """The error object of the model."""
        self.retry_after = retry_after


class MalformedAnswer(ModelError):
    """The model sent an incomplete answer. Nothing of it was kept; check the model's server."""

    should_retry = False


class StoreError(TurnledgerError):
    """The store could not carry out the operation. Nothing was written; check the log."""

    public_message: str | None = None
    """The message without names of files; None: that of the class."""

    def for_clients(self) -> str:
        """Return a message that names no files."""
        return self.public_message or str(type(self)())


class StoreUnavailable(StoreError):
    """The store cannot be reached at the moment. Nothing was written; try again."""


class StoreFull(StoreError):
    """The disk of the store is full. Nothing was written; free some space and try again."""


class StoreReadOnly(StoreError):
    """The store cannot be written to. Check the permissions of the file and of its folder."""


class StoreCorrupt(StoreError):
    """The store is damaged. It was left untouched; restore it from a backup."""


class NotAStore(StoreError):
    """That does not name a Turnledger store. Correct the URL."""


class StoreTooNew(StoreError):
    """A newer version of Turnledger wrote this store. It was left untouched; upgrade Turnledger."""


class UnsafeSqlite(StoreError):
    """This SQLite can damage a database that several processes share. Upgrade the apsw package."""


class OutcomeUnknown(StoreError):
    """The store failed while finishing a write, which may be stored or not. Read it before retrying."""

    because: type[TurnledgerError] | None = None
    """The cause, where the store knows it, for example StoreCorrupt."""


class CommitOutcomeUnknown(OutcomeUnknown):
    """It is not known yet whether the turn was committed. Retry with the same idempotency_key to learn it."""


class RequestFailed(TurnledgerError):
    """The server refused the request; `code` says why."""


class NotAdmitted(RequestFailed):
    """The server rejected the token. Check the api_key and its scopes."""


class TooManyRequests(RequestFailed):
    """A limit of the server is reached. Try again later."""


class ServerUnavailable(RequestFailed):
    """The server is unreachable or sent no complete answer. Check it; retry with the same idempotency_key."""

    def __init__(self, message: str | None = None, *, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key


class LedgerElsewhere(TurnledgerError):
    """This ledger was opened in another process or event loop. Open one here."""


class LedgerClosed(TurnledgerError):
    """The ledger was closed. Open a new one."""


def turn_of(problem: BaseException) -> Turn | None:
    """Return the turn that a cancelled call has left in the history, or None if it left none.

    `problem` is the CancelledError that left the block or the runner's call, or the TimeoutError that
    asyncio made of it. Raises CommitOutcomeUnknown while the outcome is not known.
    """
    from asyncio import CancelledError

    found: BaseException | None = problem
    while found is not None:
        if isinstance(found, CancelledError) and "turn" in vars(found):
            unknown, turn = vars(found)["unknown"], vars(found)["turn"]
            if unknown is not None:
                raise unknown
            return turn  # type: ignore[no-any-return]
        found = found.__cause__ or found.__context__
    return None
