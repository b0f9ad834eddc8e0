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
    Broken,
    Forget,
    Give,
    Keep,
    Open,
    Pause,
    Record,
    Reply,
    Request,
    Sending,
    Steps,
)
from turnledger.client.errors import (
    OF_THE_PROCESS,
    Told,
    failed_with,
    is_of_a_stranger,
    like,
    told_by,
    told_in_stream,
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
from turnledger.model.event import Event, TextDelta, TurnFinished
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import AttemptState, Failure

_events = msgspec.json.Decoder[Event](Event)
FORBIDDEN = 403
_MOST_DIGITS = 19
"""No turn has so many events."""
_GARBLED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NO_SERVER = "This is not a Turnledger server. Check base_url."
_PROCESS_FAILED = "the process that ran the turn ended"


class TurnFollower:
    """Follows one turn, for one reader. Other threads may read its attributes."""

    def __init__(
        self,
        trying: RetryCount,
        retries: Retries,
        *,
        ask: Callable[[], Steps[Request]] | None = None,
        idempotency_key: str | None = None,
        turn: TurnId | None = None,
        after: int = 0,
        may_be_replayed: bool = True,
        on_place: Callable[[ConversationId], None] | None = None,
    ) -> None:
        """`ask` makes the request for the turn; without it, the named turn is only read. A fresh
        idempotency_key cannot be replayed."""
        self.idempotency_key = idempotency_key
        self.turn = turn
        self.conversation: ConversationId | None = None
        self.state = "continued"
        self.is_replayed = False
        self.finished: TurnFinished | None = None
        self._trying = trying
        self._retries = retries
        self._ask = ask
        self._request: Request | None = None
        self._on_place = on_place
        self._may_be_replayed = may_be_replayed
        self._asks = turn is None
        """Whether to request the turn next; otherwise read on."""
        self._after = self._last = after
        self._looks_back = False
        self._attempt = 1
        self._texts: list[str] = []
        self._request_id: str | None = None
        self._stop: Callable[[TurnId], Steps[Any]] | None = None
        self._may_have_arrived = False
        self._was_answered = False
        self._may_read = True
        """Whether the token may read events; otherwise the follower repeats its request."""
        self._is_given_up = False
        self._has_heard = False
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
        if self._ask is not None:
            self._request = yield from self._ask()
            if self.idempotency_key is not None:
                yield from self._recorded(self._request, self.idempotency_key)
                return
        yield from self._until_known()
        if self._error is not None:
            raise self._error

    def _recorded(self, request: Request, idempotency_key: str) -> Steps[None]:
        """Follow a recorded turn until its outcome is known."""
        sending = Sending()
        try:
            yield Record(idempotency_key, request, sending)
            self._is_recorded = True
            yield from self._until_known()
        except TurnledgerError as problem:
            # If the server cannot be reached, or asks to retry, the outcome is unknown.
            is_unheard = isinstance(problem, NotAdmitted | TokenRefused) or is_of_a_stranger(problem)
            if self._is_given_up or is_unheard:
                yield Keep(idempotency_key, self._was_answered or self._may_have_arrived)
            else:
                yield from self._forgotten()
            raise
        else:
            yield from self._forgotten()
        finally:
            sending.is_over = True
        if self._error is not None:
            raise self._error

    def _forgotten(self) -> Steps[None]:
        if self._is_recorded and self.idempotency_key is not None:
            self._is_recorded = False
            yield Forget(self.idempotency_key)

    def _until_known(self) -> Steps[None]:
        while True:
            opened: Reply | Broken = yield Open(self._next_request())
            trouble: Told | Broken | None
            self._was_answered |= isinstance(opened, Reply)
            if isinstance(opened, Broken):
                self._may_have_arrived |= opened.may_have_arrived
                trouble = opened
            elif opened.status == 200:
                trouble = yield from self._listen(opened)
            else:
                trouble = self._refused(told_by(opened))
            if trouble is None:
                return
            yield Pause(self._pause_after(trouble))

    @property
    def request(self) -> Request | None:
        return self._request

    def _next_request(self) -> Request:
        self._asks |= not self._may_read
        if self._asks and self._request is not None:
            return self._request
        assert self.turn is not None  # noqa: S101 - there is a turn to read, or a request for it
        return Request(
            method="GET",
            path=f"/api/turns/{self.turn}/events",
            headers={
                "accept": "text/event-stream",
                "last-event-id": str(0 if self._looks_back else self._last),
            },
        )

    def _refused(self, problem: Told) -> Told:
        if isinstance(problem.error, TurnNotFound) and not self._asks and self._request is not None:
            self._asks = True  # the store lost it in a power cut
            return Told(problem.error, is_passing=True)
        is_forbidden = isinstance(problem.error, NotAdmitted) and problem.error.status == FORBIDDEN
        if is_forbidden and not self._asks and self._request is not None:
            self._may_read = False  # a token without `read` repeats its request, which returns all events
            return Told(problem.error, is_passing=True)
        if not problem.is_passing:
            raise problem.error
        return problem

    def _pause_after(self, trouble: Told | Broken) -> float:
        """Return the seconds before the next try. Raises if there is none."""
        if isinstance(trouble, Broken):
            seconds = None if trouble.is_hopeless else self._trying.pause()
            error = self._given_up(trouble.reason)
        else:
            seconds = self._trying.pause(trouble.retry_after)
            error = trouble.error
            if isinstance(error, ServerUnavailable):
                error = like(error, self._given_up(str(error)))
        if seconds is None:
            self._is_given_up = True
            raise error
        return seconds

    def _given_up(self, reason: str) -> TurnledgerError:
        tries = f", after {self._trying.failed} tries" if self._trying.failed > 1 else ""
        text = f"The server sent no complete answer{tries}: {reason.rstrip('.')}."
        if self.idempotency_key is not None:
            text += f" {self._how_it_stands()} Ask again with the same idempotency_key, and it happens once."
        return ServerUnavailable(text, idempotency_key=self.idempotency_key)

    def _how_it_stands(self) -> str:
        if self.turn is not None:
            return f"The turn {self.turn} may still be running."
        if self._may_have_arrived:
            return "The turn may have begun, and may still be running."
        return "The request never reached it: nothing was run."

    def _listen(self, opened: Reply) -> Steps[Told | Broken | None]:
        """Yield the events of a stream; return None after the last one, or what went wrong."""
        if restarted := self._placed(opened):
            yield Give((restarted,))
        if self._stop is not None and self.turn is not None:
            stop, self._stop = self._stop, None
            with suppress(TurnledgerError):  # then it continues, and is read
                yield from stop(self.turn)
        parser, self._has_heard = EventParser(), False
        chunk: bytes | Broken = yield READ
        while True:
            if isinstance(chunk, Broken):
                return chunk
            if not chunk:
                return self._ended_early()
            given: list[Any] = []
            trouble = self._take(parser.feed(chunk), given)
            if given:
                self._has_heard, self._looks_back = True, False
                self._trying.failed = 0
            if trouble is not None:
                if given:
                    yield Give(given)
                if isinstance(trouble, Told) and not trouble.is_passing:
                    raise trouble.error
                return trouble
            if self._is_recorded and self.finished is not None:
                yield Give(given[:-1])
                yield from self._forgotten()  # the reader of the last event knows the outcome, and may leave
                del given[:-1]
            # The stream ends after the last event, and its connection is free again.
            chunk = yield Give(given, then_read=True) if given else READ
            if self.finished is not None:
                return None

    def _placed(self, opened: Reply) -> TurnRestarted | None:
        """Note where the turn runs; return a restart if the attempt is another one."""
        headers = opened.headers
        self._request_id = headers.get("x-request-id")
        if not headers.get("content-type", "").startswith("text/event-stream"):
            raise RequestFailed(_NO_SERVER)
        if not self._asks:
            return None
        try:
            turn, conversation = TurnId(headers["x-turn-id"]), ConversationId(headers["x-conversation-id"])
        except (KeyError, InvalidId):
            raise RequestFailed(_NO_SERVER) from None
        if self._on_place is not None:
            self._on_place(conversation)
        if conversation != self.conversation:
            self.state = headers.get("x-conversation-state", self.state)
        self.is_replayed = self._may_be_replayed and headers.get("idempotency-replayed") == "true"
        self._asks, self.conversation = False, conversation
        known, self.turn = self.turn, turn
        if known in (None, turn):
            return None
        self._attempt += 1
        if not self._last:
            return None  # nothing of the previous attempt was read
        self._last = 0
        self._texts.clear()
        return TurnRestarted(turn=turn, attempt=self._attempt)

    def _take(self, sent: list[SentEvent], given: list[Any]) -> Told | Broken | None:
        for id, kind, data in sent:
            if kind == b"error":
                return told_in_stream(data, self._request_id)
            if not data:
                continue
            number = int(id) if id.isdigit() and len(id) < _MOST_DIGITS else 0
            if number <= self._last:
                if kind == b"turn.finished" and self._last > self._after:
                    return self._kept_less(data, given)
                continue
            if number != self._last + 1:
                return Broken("events are missing from the stream")
            try:
                event = _events.decode(data)
            except msgspec.ValidationError:
                self._last = number  # a kind of event that this client does not know yet
                continue
            except _GARBLED:
                return Broken("an event in the stream is garbled")
            if type(event) is TextDelta:
                self._texts.append(event.text)
            elif type(event) is TurnFinished and (trouble := self._ended(event)) is not None:
                return trouble
            self._last = number
            given.append(event)
        return None

    def _ended(self, event: TurnFinished) -> Broken | None:
        """Note how the turn ended, or return why to request it again."""
        failure = event.failure
        is_failed = event.state in (AttemptState.FAILED, AttemptState.RESUMED)
        if is_failed and self._may_restart(event.state, failure):
            self._asks = True
            return Broken(failure.message if failure else _PROCESS_FAILED)
        self.finished = event
        if self._ask is None or event.state in (AttemptState.COMPLETED, AttemptState.KEPT):
            return None
        if event.state is AttemptState.DISCARDED or (event.state is AttemptState.SETTLED and not failure):
            self._error = TurnStopped()
        else:
            self._error = failed_with(failure)
        return None

    def _kept_less(self, data: bytes, given: list[Any]) -> Broken:
        """Handle a turn that ended before the last event that was read: its process died, and only its stored
        part is kept. Read that from the beginning; if nothing was kept, request the turn again."""
        try:
            event = _events.decode(data)
        except _GARBLED:
            return Broken("an event in the stream is garbled")
        if type(event) is TurnFinished and self._ended(event) is None:
            self.finished = self._error = None  # they come again, after the earlier events
            self._last = self._after = 0
            self._texts.clear()
            assert self.turn is not None  # noqa: S101 - its events were read
            given.append(TurnRestarted(turn=self.turn, attempt=self._attempt))
        self._asks = self._request is not None
        return Broken("less of the turn was kept than it had told")

    def _may_restart(self, state: AttemptState, failure: Failure | None) -> bool:
        """Whether the failure was not the model's, so that the same request may succeed. Bounded: a turn may
        kill its server each time, however many events it sends before."""
        if self._request is None or self._attempt > self._retries.times:
            return False
        return state is AttemptState.RESUMED or (failure is not None and failure.code in OF_THE_PROCESS)

    def _ended_early(self) -> Broken | None:
        if self._request is None and not self._has_heard:
            if self._last == self._after or self._looks_back:
                return None  # withdrawn before it began, or read completely before
            self._looks_back = True  # or it ended before the last event that was read
        # A turn that died with its process sent more than was stored: there is no event to read on from.
        self._asks = self._request is not None
        return Broken("the stream ended before the turn did")
