"""Follows a turn to its end, across lost connections and restarted servers.

A turn is requested under an idempotency_key, so repeating the request is always safe: the server attaches it
to the running turn, replays a committed one, or retries one that failed. Once the turn's id is known, its
events are read on by their numbers, which is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from turnledger.client.core.exchange import Retries, RetryCount
from turnledger.client.core.sse import EventParser, SentEvent
from turnledger.client.core.steps import (
    READ,
    ConnectionFailure,
    Emit,
    Forget,
    Keep,
    Open,
    Pause,
    Record,
    Reply,
    Request,
    SendState,
    Steps,
)
from turnledger.client.errors import (
    PROCESS_CODES,
    ErrorReport,
    copy_details,
    error_in_reply,
    error_in_stream,
    error_of_failure,
    is_foreign,
)
from turnledger.client.shapes import TurnRestarted
from turnledger.errors import (
    InvalidId,
    NotAdmitted,
    RequestFailed,
    ServerUnavailable,
    TokenRefused,
    TurnledgerError,
    TurnNotFound,
    TurnStopped,
)
from turnledger.model.event import Event, ItemDone, TextDelta, TurnFinished, TurnResumed
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import AttemptState, Failure

_events = msgspec.json.Decoder[Event](Event)
FORBIDDEN = 403
_MAX_DIGITS = 19
"""No turn has so many events."""
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOT_TURNLEDGER = "This is not a Turnledger server. Check base_url."
_PROCESS_FAILED = "the process that ran the turn ended"


class TurnFollower:
    """Follows one turn, for one reader. Other threads may read its attributes."""

    def __init__(
        self,
        retry_count: RetryCount,
        retries: Retries,
        *,
        make_request: Callable[[], Steps[Request]] | None = None,
        idempotency_key: str | None = None,
        turn: TurnId | None = None,
        after: int = 0,
        may_be_replayed: bool = True,
        on_conversation: Callable[[ConversationId], None] | None = None,
    ) -> None:
        """`make_request` makes the request for the turn; without it, the named turn is only read. A fresh
        idempotency_key cannot be replayed."""
        self.idempotency_key = idempotency_key
        self.turn = turn
        self.conversation: ConversationId | None = None
        self.state = "continued"
        self.is_replayed = False
        self.finished: TurnFinished | None = None
        self._retry_count = retry_count
        self._retries = retries
        self._make_request = make_request
        self._request: Request | None = None
        self._on_conversation = on_conversation
        self._may_be_replayed = may_be_replayed
        self._is_requesting = turn is None
        """Whether to request the turn next; otherwise read on."""
        self._after = self._last_number = after
        self._rereads = False
        self._attempt = 1
        self._texts: list[str] = []
        self._finished_texts = 0
        """How many of the texts came before the last finished item."""
        self._request_id: str | None = None
        self._stop: Callable[[TurnId], Steps[Any]] | None = None
        self._may_have_arrived = False
        self._has_reply = False
        self._may_read = True
        """Whether the token may read events; otherwise the follower repeats its request."""
        self._has_given_up = False
        self._has_received = False
        """On the open connection."""
        self._error: TurnledgerError | None = None
        self._is_recorded = False

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def stop_when_begun(self, stop: Callable[[TurnId], Steps[Any]]) -> None:
        """Stop the turn by these steps once it has an id; its reader runs them."""
        self._stop = stop

    def steps(self) -> Steps[None]:
        """Follow the turn, and yield its events. Then raises the error if it failed or was stopped."""
        if self._make_request is not None:
            self._request = yield from self._make_request()
            if self.idempotency_key is not None:
                yield from self._follow_recorded(self._request, self.idempotency_key)
                return
        yield from self._follow_to_end()
        if self._error is not None:
            raise self._error

    def _follow_recorded(self, request: Request, idempotency_key: str) -> Steps[None]:
        """Follow a recorded turn until its outcome is known."""
        sending = SendState()
        try:
            yield Record(idempotency_key, request, sending)
            self._is_recorded = True
            yield from self._follow_to_end()
        except TurnledgerError as problem:
            # If the server cannot be reached, or asks to retry, the outcome is unknown.
            is_unreached = isinstance(problem, NotAdmitted | TokenRefused) or is_foreign(problem)
            if self._has_given_up or is_unreached:
                yield Keep(idempotency_key, self._has_reply or self._may_have_arrived)
            else:
                yield from self._remove_record()
            raise
        else:
            yield from self._remove_record()
        finally:
            sending.is_over = True
        if self._error is not None:
            raise self._error

    def _remove_record(self) -> Steps[None]:
        if self._is_recorded and self.idempotency_key is not None:
            self._is_recorded = False
            yield Forget(self.idempotency_key)

    def _follow_to_end(self) -> Steps[None]:
        while True:
            opened: Reply | ConnectionFailure = yield Open(self._next_request())
            failure: ErrorReport | ConnectionFailure | None
            self._has_reply |= isinstance(opened, Reply)
            if isinstance(opened, ConnectionFailure):
                self._may_have_arrived |= opened.may_have_arrived
                failure = opened
            elif opened.status == 200:
                failure = yield from self._read_events(opened)
            else:
                failure = self._check_refusal(error_in_reply(opened))
            if failure is None:
                return
            yield Pause(self._pause_after(failure))

    @property
    def request(self) -> Request | None:
        return self._request

    def _next_request(self) -> Request:
        self._is_requesting |= not self._may_read
        if self._is_requesting and self._request is not None:
            return self._request
        assert self.turn is not None  # noqa: S101 - there is a turn to read, or a request for it
        return Request(
            method="GET",
            path=f"/api/turns/{self.turn}/events",
            headers={
                "accept": "text/event-stream",
                "last-event-id": str(0 if self._rereads else self._last_number),
            },
        )

    def _check_refusal(self, problem: ErrorReport) -> ErrorReport:
        if isinstance(problem.error, TurnNotFound) and not self._is_requesting and self._request is not None:
            self._is_requesting = True  # the store lost it in a power cut
            return ErrorReport(problem.error, is_temporary=True)
        is_forbidden = isinstance(problem.error, NotAdmitted) and problem.error.status == FORBIDDEN
        if is_forbidden and not self._is_requesting and self._request is not None:
            self._may_read = False  # a token without `read` repeats its request, which returns all events
            return ErrorReport(problem.error, is_temporary=True)
        if not problem.is_temporary:
            raise problem.error
        return problem

    def _pause_after(self, failure: ErrorReport | ConnectionFailure) -> float:
        """Return the seconds before the next try. Raises if there is none."""
        if isinstance(failure, ConnectionFailure):
            seconds = None if failure.is_hopeless else self._retry_count.pause()
            error = self._unavailable_error(failure.reason)
        else:
            seconds = self._retry_count.pause(failure.retry_after)
            error = failure.error
            if isinstance(error, ServerUnavailable):
                error = copy_details(error, self._unavailable_error(str(error)))
        if seconds is None:
            self._has_given_up = True
            raise error
        return seconds

    def _unavailable_error(self, reason: str) -> TurnledgerError:
        tries = f", after {self._retry_count.failed} tries" if self._retry_count.failed > 1 else ""
        text = f"The server sent no complete answer{tries}: {reason.rstrip('.')}."
        if self.idempotency_key is not None:
            text += f" {self._describe_state()} Retry with the same idempotency_key: the turn runs once."
        return ServerUnavailable(text, idempotency_key=self.idempotency_key)

    def _describe_state(self) -> str:
        if self.turn is not None:
            return f"The turn {self.turn} may still be running."
        if self._may_have_arrived:
            return "The turn may have begun, and may still be running."
        return "The request never reached it: nothing was run."

    def _read_events(self, opened: Reply) -> Steps[ErrorReport | ConnectionFailure | None]:
        """Yield the events of a stream; return None after the last one, or what went wrong."""
        if restarted := self._read_place(opened):
            yield Emit((restarted,))
        if self._stop is not None and self.turn is not None:
            stop, self._stop = self._stop, None
            with suppress(TurnledgerError):  # then it continues, and is read
                yield from stop(self.turn)
        parser, self._has_received = EventParser(), False
        chunk: bytes | ConnectionFailure = yield READ
        while True:
            if isinstance(chunk, ConnectionFailure):
                return chunk
            if not chunk:
                return self._handle_early_end()
            events: list[Any] = []
            failure = self._handle_events(parser.feed(chunk), events)
            if events:
                self._has_received, self._rereads = True, False
                self._retry_count.failed = 0
            if failure is not None:
                if events:
                    yield Emit(events)
                if isinstance(failure, ErrorReport) and not failure.is_temporary:
                    raise failure.error
                return failure
            if self._is_recorded and self.finished is not None:
                yield Emit(events[:-1])
                yield from self._remove_record()  # the reader of the last event may leave
                del events[:-1]
            # The stream ends after the last event, and its connection is free again.
            chunk = yield Emit(events, then_read=True) if events else READ
            if self.finished is not None:
                return None

    def _read_place(self, opened: Reply) -> TurnRestarted | None:
        """Note where the turn runs; return a restart if the attempt is another one."""
        headers = opened.headers
        self._request_id = headers.get("x-request-id")
        if not headers.get("content-type", "").startswith("text/event-stream"):
            raise RequestFailed(_NOT_TURNLEDGER)
        if not self._is_requesting:
            return None
        try:
            turn, conversation = TurnId(headers["x-turn-id"]), ConversationId(headers["x-conversation-id"])
        except (KeyError, InvalidId):
            raise RequestFailed(_NOT_TURNLEDGER) from None
        if self._on_conversation is not None:
            self._on_conversation(conversation)
        if conversation != self.conversation:
            self.state = headers.get("x-conversation-state", self.state)
        self.is_replayed = self._may_be_replayed and headers.get("idempotency-replayed") == "true"
        self._is_requesting, self.conversation = False, conversation
        previous, self.turn = self.turn, turn
        if previous in (None, turn):
            return None
        self._attempt += 1
        if not self._last_number:
            return None  # nothing of the previous attempt was read
        self._last_number = 0
        self._clear_texts()
        return TurnRestarted(turn=turn, attempt=self._attempt)

    def _handle_events(
        self, raw_events: list[SentEvent], events: list[Any]
    ) -> ErrorReport | ConnectionFailure | None:
        for id, kind, data in raw_events:
            if kind == b"error":
                return error_in_stream(data, self._request_id)
            if not data:
                continue
            number = int(id) if id.isdigit() and len(id) < _MAX_DIGITS else 0
            if number <= self._last_number:
                if kind == b"turn.finished" and self._last_number > self._after:
                    return self._handle_shortened(data, events)
                continue
            if number != self._last_number + 1:
                return ConnectionFailure("events are missing from the stream")
            try:
                event = _events.decode(data)
            except msgspec.ValidationError:
                self._last_number = number  # a kind of event that this client does not know yet
                continue
            except _DECODE_ERRORS:
                return ConnectionFailure("an event in the stream is garbled")
            if type(event) is TextDelta:
                self._texts.append(event.text)
            elif type(event) is ItemDone:
                self._finished_texts = len(self._texts)
            elif type(event) is TurnResumed:
                del self._texts[self._finished_texts :]
            elif type(event) is TurnFinished and (failure := self._handle_end(event)) is not None:
                return failure
            self._last_number = number
            events.append(event)
        return None

    def _handle_end(self, event: TurnFinished) -> ConnectionFailure | None:
        """Note how the turn ended, or return why to request it again."""
        failure = event.failure
        is_failed = event.state in (AttemptState.FAILED, AttemptState.RESUMED)
        if is_failed and self._may_restart(event.state, failure):
            self._is_requesting = True
            return ConnectionFailure(failure.message if failure else _PROCESS_FAILED)
        self.finished = event
        if self._make_request is None or event.state in (AttemptState.COMPLETED, AttemptState.KEPT):
            return None
        if event.state is AttemptState.DISCARDED or (event.state is AttemptState.SETTLED and not failure):
            self._error = TurnStopped()
        else:
            self._error = error_of_failure(failure)
        return None

    def _handle_shortened(self, data: bytes, events: list[Any]) -> ConnectionFailure:
        """Handle a turn that ended before the last event that was read: its process died, and only its stored
        part is kept. Read that from the beginning; if nothing was kept, request the turn again."""
        try:
            event = _events.decode(data)
        except _DECODE_ERRORS:
            return ConnectionFailure("an event in the stream is garbled")
        if type(event) is TurnFinished and self._handle_end(event) is None:
            self.finished = self._error = None  # they come again, after the earlier events
            self._last_number = self._after = 0
            self._clear_texts()
            assert self.turn is not None  # noqa: S101 - its events were read
            events.append(TurnRestarted(turn=self.turn, attempt=self._attempt))
        self._is_requesting = self._request is not None
        return ConnectionFailure("less of the turn was kept than was sent")

    def _clear_texts(self) -> None:
        self._texts.clear()
        self._finished_texts = 0

    def _may_restart(self, state: AttemptState, failure: Failure | None) -> bool:
        """Whether the failure was not the model's, so that the same request may succeed. Bounded: a turn may
        kill its server each time, however many events it sends before."""
        if self._request is None or self._attempt > self._retries.times:
            return False
        return state is AttemptState.RESUMED or (failure is not None and failure.code in PROCESS_CODES)

    def _handle_early_end(self) -> ConnectionFailure | None:
        if self._request is None and not self._has_received:
            if self._last_number == self._after or self._rereads:
                return None  # withdrawn before it began, or read completely before
            self._rereads = True  # or it ended before the last event that was read
        # A turn that died with its process sent more than was stored: there is no event to read on from.
        self._is_requesting = self._request is not None
        return ConnectionFailure("the stream ended before the turn did")
