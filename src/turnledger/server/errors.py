"""Map errors to HTTP responses: the only place that decides the status of an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import msgspec
from starlette.types import Send

from turnledger import errors
from turnledger.api.errors import Error, ErrorDetails
from turnledger.errors import ModelError, ModelRefused, StoreError, TurnledgerError
from turnledger.server.ops import logs

Headers = Iterable[tuple[bytes, bytes]]

NO_RETRY = (b"x-should-retry", b"false")
"""The official OpenAI clients retry 408, 409, 429 and 5xx unless this header forbids it."""
INTERNAL = (
    "Internal server error. No acknowledged turn is lost. The server's log has the details under this "
    "request's x-request-id."
)

OUT_OF_MEMORY = "The server has too little memory for this request. Try again later, or send less."


class RequestRefused(TurnledgerError):
    """The request was refused before it reached the ledger. Nothing changed."""

    code = "refused"
    status: int

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        # The server's many refusals share one class, and each has its own code.
        self.code = code  # type: ignore[misc]
        self.param = param
        self.headers = tuple(headers)


Fields: TypeAlias = Mapping[type[TurnledgerError], str]
"""The fields of a request that errors of these classes are about."""


def input_field(name: str) -> Fields:
    """Return the fields of a request that has its input in the field of this name."""
    return dict.fromkeys((errors.NoNewInput, errors.MissingToolResults, errors.MalformedItems), name)


def name_field(problem: BaseException, fields: Fields) -> None:
    """Set the field that an error is about, unless the error names it itself."""
    if isinstance(problem, TurnledgerError) and problem.param is None:
        problem.param = next((fields[each] for each in type(problem).__mro__ if each in fields), None)


@contextmanager
def about(param: str) -> Iterator[None]:
    """Name the field or parameter that all errors of the block are about."""
    try:
        yield
    except TurnledgerError as problem:
        problem.param = param
        raise


class ClientGone(TurnledgerError):
    """The client closed the connection before its request was complete. No response is sent."""

    code = "client_gone"


def shutdown_error() -> RequestRefused:
    """Return the error for a late request, a stream, or a turn that outlasted the grace time."""
    reason = "The server is shutting down. The requested turn has failed, or has not begun."
    message = f"{reason} Try again in a moment."
    return RequestRefused(503, "shutting_down", message, headers=[(b"retry-after", b"1")])


class ErrorKind(NamedTuple):
    status: int
    type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


REQUEST, LIMIT = "invalid_request_error", "rate_limit_error"
SERVER, UPSTREAM = "server_error", "upstream_error"
CONFLICT = ErrorKind(409, REQUEST, (NO_RETRY,))
BROKEN_STORE = ErrorKind(500, SERVER, (NO_RETRY,))
UNAVAILABLE = ErrorKind(503, SERVER, ((b"retry-after", b"1"),))

PASSED_ON = frozenset({400, 404, 413, 415, 422, 429, 451})
"""Statuses of an upstream that concern the request and are passed on; others concern only the server."""

KINDS: dict[type[TurnledgerError], ErrorKind] = {
    TurnledgerError: ErrorKind(500, SERVER),
    errors.InvalidInput: ErrorKind(400, REQUEST),
    errors.InvalidId: ErrorKind(400, REQUEST),
    errors.NoNewInput: ErrorKind(400, REQUEST),
    errors.MissingToolResults: ErrorKind(400, REQUEST),
    errors.MalformedItems: ErrorKind(400, REQUEST),
    errors.EmptyTurn: ErrorKind(502, UPSTREAM),
    errors.IdempotencyMismatch: ErrorKind(422, REQUEST),
    errors.ConversationUnavailable: ErrorKind(404, REQUEST),
    errors.ConversationNotFound: ErrorKind(404, REQUEST),
    errors.ConversationDeleted: ErrorKind(410, REQUEST),
    errors.ConversationExpired: ErrorKind(410, REQUEST),
    errors.HistoryUnavailable: ErrorKind(404, REQUEST),
    errors.TurnNotFound: ErrorKind(404, REQUEST),
    errors.BranchNotFound: ErrorKind(404, REQUEST),
    errors.HistoryDiverged: CONFLICT,
    errors.ConversationBusy: CONFLICT,
    errors.QueueFull: ErrorKind(429, LIMIT, ((b"retry-after", b"2"),)),
    errors.WaitEnded: CONFLICT,
    errors.StorageFull: ErrorKind(507, REQUEST, (NO_RETRY,)),
    errors.TooManyReaders: ErrorKind(429, LIMIT, ((b"retry-after", b"5"),)),
    errors.RevisionConflict: ErrorKind(412, REQUEST),
    errors.TokenRefused: ErrorKind(403, REQUEST),
    errors.TokenNotFound: ErrorKind(404, REQUEST),
    errors.TokenEnded: ErrorKind(401, REQUEST),
    errors.TokenTooWide: ErrorKind(403, REQUEST),
    errors.TooManyTokens: CONFLICT,
    errors.ShareRefused: ErrorKind(403, REQUEST),
    errors.ShareNotFound: ErrorKind(404, REQUEST),
    errors.LinkNotValid: ErrorKind(404, REQUEST),
    errors.TooManyShares: CONFLICT,
    errors.TooManyVisitors: ErrorKind(429, LIMIT, ((b"retry-after", b"60"),)),
    errors.AdmissionMoved: UNAVAILABLE,
    errors.TurnEnded: CONFLICT,
    errors.TurnReplayed: CONFLICT,
    errors.TurnAttached: CONFLICT,
    errors.TurnFailed: ErrorKind(502, UPSTREAM),
    errors.TurnStopped: CONFLICT,
    errors.Superseded: CONFLICT,
    errors.ModelError: ErrorKind(502, UPSTREAM),
    errors.ModelUnavailable: ErrorKind(502, UPSTREAM),
    errors.ModelTimeout: ErrorKind(504, UPSTREAM),
    errors.ModelRefused: ErrorKind(502, UPSTREAM),  # or the upstream's own status: see kind_of
    errors.MalformedAnswer: ErrorKind(502, UPSTREAM),
    errors.StoreError: UNAVAILABLE,
    errors.StoreUnavailable: UNAVAILABLE,
    errors.StoreFull: UNAVAILABLE,
    errors.StoreReadOnly: UNAVAILABLE,
    errors.StoreCorrupt: BROKEN_STORE,
    errors.NotAStore: BROKEN_STORE,
    errors.StoreTooNew: BROKEN_STORE,
    errors.UnsafeSqlite: BROKEN_STORE,
    errors.OutcomeUnknown: UNAVAILABLE,
    errors.CommitOutcomeUnknown: UNAVAILABLE,
    # For a server that calls another one through the client.
    errors.RequestFailed: ErrorKind(502, UPSTREAM),
    errors.NotAdmitted: ErrorKind(502, UPSTREAM),
    errors.TooManyRequests: ErrorKind(502, UPSTREAM),
    errors.ServerUnavailable: ErrorKind(502, UPSTREAM),
    errors.LedgerElsewhere: UNAVAILABLE,
    errors.LedgerClosed: UNAVAILABLE,
}
"""Every class of the tree is listed, so that the status of a new one is a decision."""


def kind_of(problem: BaseException) -> ErrorKind:
    """Return how to respond to a problem; one outside the tree is an internal error."""
    if isinstance(problem, RequestRefused):
        return ErrorKind(problem.status, _type_of(problem.status), problem.headers)
    if isinstance(problem, ModelError):
        return _kind_of_model_error(problem)
    if isinstance(problem, MemoryError):
        return UNAVAILABLE
    return _listed_kind(problem)


def _listed_kind(problem: BaseException) -> ErrorKind:
    return next((KINDS[each] for each in type(problem).__mro__ if each in KINDS), ErrorKind(500, SERVER))


def _kind_of_model_error(problem: ModelError) -> ErrorKind:
    kind = _listed_kind(problem)
    if isinstance(problem, ModelRefused) and problem.status in PASSED_ON:
        kind = ErrorKind(problem.status, _type_of(problem.status))
    wait = problem.retry_after or (1 if kind.status == 429 else None)
    headers = (
        ((b"retry-after", b"%d" % math.ceil(wait)),)
        if wait and (kind.status == 429 or kind.status >= 500)
        else ()
    )
    return kind._replace(headers=headers if problem.should_retry else (*headers, NO_RETRY))


def error_body(problem: BaseException) -> bytes:
    return msgspec.json.encode(Error(error=error_details(problem)))


def error_details(problem: BaseException) -> ErrorDetails:
    error: dict[str, Any] = {
        "message": INTERNAL,
        "type": kind_of(problem).type,
        "param": None,
        "code": "internal_error",
    }
    if isinstance(problem, TurnledgerError):
        error |= {"message": str(problem), "code": problem.code, "param": problem.param}
    if isinstance(problem, MemoryError):
        error |= {"message": OUT_OF_MEMORY, "code": "out_of_memory"}
    if isinstance(problem, StoreError):
        # The message itself names files of the server, and goes to the log.
        logs.log_repeating("store_failed", code=problem.code, details=str(problem))
        error["message"] = problem.for_clients()
    if isinstance(problem, ModelRefused):
        # Programs match on the upstream's own codes, such as context_length_exceeded.
        sent = problem.error
        error |= {name: sent[name] for name in ("type", "param", "code") if isinstance(sent.get(name), str)}
    return ErrorDetails(**error)


async def send_error(send: Send, problem: BaseException, request_id: str) -> None:
    """Respond with an error; no response must have begun. An internal error is logged, and the client
    receives only its request id."""
    if not isinstance(problem, TurnledgerError):
        logs.log_unexpected(problem, request_id=request_id)
    kind = kind_of(problem)
    body = error_body(problem)
    start = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *kind.headers,
    ]
    await send({"type": "http.response.start", "status": kind.status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def _type_of(status: int) -> str:
    if status == 429:
        return LIMIT
    return REQUEST if status < 500 else SERVER
