"""An answer: one response in either of its forms, a JSON object or a stream of chunks, and its errors.

An error is a response of its own while nothing has been sent, and stands in the stream once that has begun:
a stream that just ends looks to the official client like one that ended well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from turnledger.model.event import Event, TurnFinished
from turnledger.server.errors import error_body, kind_of
from turnledger.server.ops.metrics import Metrics
from turnledger.server.turns.chat_chunks import DONE, as_events
from turnledger.server.wire.client_stream import Headers, Outlet
from turnledger.server.wire.sse import Streams, error_event, event_bytes

_JSON = (b"content-type", b"application/json")
_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")


class Answer:
    """What one request is told."""

    def __init__(self, outlet: Outlet, metrics: Metrics) -> None:
        self.outlet = outlet
        self._metrics = metrics
        self._is_stream = False
        self.is_good = False
        """Whether it ended well."""
        self._headers: dict[bytes, bytes] = {}

    def header(self, name: bytes, value: str) -> None:
        """Set a header; in vain once the answer has begun."""
        self._headers[name] = value.encode("latin-1")

    def whole(self, body: bytes, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Answer with one JSON object."""
        length = (b"content-length", b"%d" % len(body))
        self.is_good = status == 200
        self.outlet.begin(status, [*self._headers.items(), _JSON, length, *headers])
        self.outlet.end(body)

    def chunks(self, payloads: Iterable[bytes]) -> None:
        """Answer with more chunks of a stream."""
        if not self.outlet.has_begun:
            self._begin_stream()
        self.outlet.write(as_events(payloads))

    def done(self, last: Iterable[bytes]) -> None:
        """End a stream well."""
        if not self.outlet.has_begun:
            self._begin_stream()
        self.is_good = True
        self.outlet.end(as_events(last) + DONE)

    def fail(self, problem: BaseException) -> None:
        """Tell what went wrong."""
        if self.outlet.has_begun:
            self.outlet.end(self._error_in_stream(problem))
        else:
            kind = kind_of(problem)
            self.whole(error_body(problem), kind.status, kind.headers)

    def _error_in_stream(self, problem: BaseException) -> bytes:
        return as_events([error_body(problem)])

    def close(self) -> None:
        """Nothing more is sent."""
        if self._is_stream:
            self._metrics.stream_closed()

    def _begin_stream(self) -> None:
        self._is_stream = True
        self._metrics.stream_opened()
        self.outlet.begin(200, [*self._headers.items(), _STREAM])


class EventAnswer(Answer):
    """What a request is told whose stream are the events of the turn."""

    def __init__(self, outlet: Outlet, metrics: Metrics, streams: Streams) -> None:
        super().__init__(outlet, metrics)
        self._streams = streams
        self._is_finished = False

    def wait(self, place: Callable[[], Mapping[bytes, str] | None]) -> None:
        """Begin with a sign of life if nothing else comes first, once there is a place to tell in headers."""

        def headers() -> Headers | None:
            told = place()
            if told is None:
                return None
            return [*((name, value.encode("latin-1")) for name, value in told.items()), _STREAM]

        self._streams.keep_alive(self.outlet, headers)

    def _begin_stream(self) -> None:
        if not self.outlet.has_begun:
            super()._begin_stream()
        else:  # while it waited
            self._is_stream = True
            self._metrics.stream_opened()
        self._streams.keep_alive(self.outlet)

    def close(self) -> None:
        super().close()
        self._streams.let_go(self.outlet)

    def event(self, event: Event) -> None:
        """Answer with one more event."""
        if not self._is_stream:
            self._begin_stream()
        self._is_finished = isinstance(event, TurnFinished)
        self.outlet.write(event_bytes(event))

    def end(self) -> None:
        """End a stream well, behind the last event."""
        if not self._is_stream:
            self._begin_stream()
        self.is_good = True
        self.outlet.end()

    def _error_in_stream(self, problem: BaseException) -> bytes:
        # The last event has told how the turn ended, as it does to whoever else reads them.
        return b"" if self._is_finished else error_event(problem)
