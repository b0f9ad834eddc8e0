"""Maps a server's error to an exception of turnledger.errors, by its `code`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from turnledger import errors
from turnledger.client.core.steps import Reply
from turnledger.errors import RequestFailed, TurnledgerError
from turnledger.model.turn import Failure

DAY = 86400.0
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
MODEL_CODES = frozenset({errors.MalformedAnswer.code, errors.TurnFailed.code, errors.EmptyTurn.code})
_PERMANENT_CODES = frozenset(
    each.code for each in (errors.StoreCorrupt, errors.NotAStore, errors.StoreTooNew, errors.UnsafeSqlite)
)
"""Sent in a stream, without a status; a retry does not help."""
_TOKEN_ENDED = frozenset({"missing_token", "invalid_token", "token_revoked", "token_expired"})
"""Sent in a stream when the caller's token has ended."""
_STATUS_PREFIX = "status_"
"""Prefix of the code of a response without one."""
_TEMPORARY_TYPES = frozenset({"server_error", "rate_limit_error"})
PROCESS_CODES = frozenset(
    {
        "process_died",
        "cancelled",
        "gave_up",
        "not_committed",
        "task_ended",
        "shutting_down",
        *(
            each.code
            for each in (
                errors.Superseded,
                errors.LedgerClosed,
                errors.AdmissionMoved,
                errors.StoreError,
                errors.StoreUnavailable,
                errors.StoreFull,
                errors.StoreReadOnly,
                errors.OutcomeUnknown,
                errors.CommitOutcomeUnknown,
            )
        ),
    }
)
"""Codes of failures that are not the model's: the process of the turn ended, or lost its store."""
_FIELDS: dict[type[TurnledgerError], dict[str, Any]] = {
    errors.MissingToolResults: {"missing": ()},
    errors.ConversationDeleted: {"restorable_until": None},
    errors.StorageFull: {"limit": 0},
    errors.RevisionConflict: {"current": 0},
    errors.TurnStopped: {"turn": None},
    errors.ModelRefused: {"error": {}, "retry_after": None, "should_retry": True},
    errors.ServerUnavailable: {"idempotency_key": None},
}
"""Further attributes of errors, which a server sends only within the message."""
_NEVER_SENT = (errors.TurnReplayed, errors.TurnAttached)
"""Errors that carry turns of the library; no server sends them."""


class _Error(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: str | int | None = None

    @property
    def field(self) -> str | None:
        return None if self.param is None else str(self.param)


class _Body(msgspec.Struct):
    error: _Error


_decoder = msgspec.json.Decoder(_Body)


class ErrorReport(msgspec.Struct, frozen=True):
    error: TurnledgerError
    is_temporary: bool
    retry_after: float | None = None


def _tree(kind: type[TurnledgerError]) -> Iterator[type[TurnledgerError]]:
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from _tree(each)


_CLASSES = {kind.code: kind for kind in _tree(TurnledgerError) if kind not in _NEVER_SENT}


def error_of(
    code: str,
    message: str,
    *,
    status: int | None = None,
    request_id: str | None = None,
    param: str | None = None,
) -> TurnledgerError:
    """Return the error for a code; for an unknown one a class by status, or RequestFailed."""
    kind = _CLASSES.get(code) or _class_of_status(code, status)
    # Not by the constructors: the server made the message.
    error = kind.__new__(kind)
    Exception.__init__(error, message or " ".join((kind.__doc__ or "").split()))
    for name, value in _FIELDS.get(kind, {}).items():
        setattr(error, name, value)
    if kind.code != code:
        error.code = code  # type: ignore[misc]
    error.status, error.request_id, error.param = status, request_id, param
    return error


def _class_of_status(code: str, status: int | None) -> type[TurnledgerError]:
    if status in (401, 403):
        return errors.NotAdmitted
    if status == 429:
        return errors.TooManyRequests
    if status in (502, 503, 504) or code == "shutting_down":
        return errors.ServerUnavailable
    return RequestFailed


def error_in_reply(reply: Reply) -> ErrorReport:
    request_id = reply.headers.get("x-request-id")
    try:
        error_body = _decoder.decode(reply.body).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error_body = _Error()
    code = str(error_body.code or f"{_STATUS_PREFIX}{reply.status}")
    message = error_body.message or (
        f"Unexpected response with status {reply.status}, not from Turnledger. "
        "Check the address and any proxy."
    )
    error = error_of(code, message, status=reply.status, request_id=request_id, param=error_body.field)
    should_retry = reply.headers.get("x-should-retry") != "false"
    if isinstance(error, errors.ModelError):
        error.should_retry = should_retry
    is_temporary = reply.status in RETRYABLE and should_retry and not is_model_error(code)
    return ErrorReport(error, is_temporary, _seconds(reply.headers.get("retry-after")))


def error_in_stream(data: bytes, request_id: str | None) -> ErrorReport:
    """Return the error in an `error` event, which has no status."""
    try:
        error_body = _decoder.decode(data).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error_body = _Error(type="server_error")
    code = str(error_body.code or "error_in_stream")
    is_temporary = (
        error_body.type in _TEMPORARY_TYPES and code not in _PERMANENT_CODES and not is_model_error(code)
    )
    status = 401 if code in _TOKEN_ENDED else None
    message, param = error_body.message or "", error_body.field
    return ErrorReport(
        error_of(code, message, status=status, request_id=request_id, param=param), is_temporary
    )


def error_of_failure(failure: Failure | None) -> TurnledgerError:
    if failure is None:
        return errors.TurnFailed()
    kind = _CLASSES.get(failure.code, errors.TurnFailed)
    error = error_of(kind.code, failure.message)
    if kind.code != failure.code:
        error.code = failure.code  # type: ignore[misc]
    return error


def copy_details(source: TurnledgerError, error: TurnledgerError) -> TurnledgerError:
    """Copy status, code, param and request id from one error to another."""
    error.status, error.request_id, error.param = source.status, source.request_id, source.param
    error.code = source.code  # type: ignore[misc]
    return error


def is_foreign(problem: TurnledgerError) -> bool:
    """Whether the error is not Turnledger's: a proxy answered, and no server received the request."""
    return problem.code == RequestFailed.code or problem.code.startswith(_STATUS_PREFIX)


def closed_error() -> TurnledgerError:
    error = RequestFailed("The client was closed. Open a new one; its requests may still be running.")
    error.code = "client_closed"  # type: ignore[misc]
    return error


def is_model_error(code: str) -> bool:
    """Whether the model gave no complete answer: a retry costs money, and is up to the caller."""
    return code.startswith("model_") or code in MODEL_CODES


def _seconds(retry_after: str | None) -> float | None:
    try:
        return min(max(0.0, float(retry_after)), DAY) if retry_after else None
    except ValueError:
        return None  # a date, which no Turnledger server sends
