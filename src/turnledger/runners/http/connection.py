"""A connection to an upstream: one request at a time, and its response as it arrives.

All deadlines share one timer, reset only for an earlier deadline. Most are postponed with every piece of a
stream, which costs an assignment, not a timer.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from turnledger.runners.http.response import GzipDecoder, Response
from turnledger.runners.upstream.failures import UpstreamFailure, cut_off, no_response, not_http, too_slow

NEVER = float("inf")


class DeadlineHolder(Protocol):
    """Something with a deadline, which it may postpone by itself."""

    deadline: float
    """By the clock of the loop."""

    def expire(self) -> None: ...


class Deadlines:
    __slots__ = ("_due_at", "_loop", "_timer", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: set[DeadlineHolder] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = NEVER

    def watch(self, holder: DeadlineHolder) -> None:
        """Expire it when its deadline has passed. Call it again when the deadline moves closer."""
        self._watched.add(holder)
        if holder.deadline < self._due_at:
            self._set(holder.deadline)

    def forget(self, holder: DeadlineHolder) -> None:
        self._watched.discard(holder)

    def close(self) -> None:
        self._watched.clear()
        self._set(NEVER)

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_at = at
        self._timer = None if at == NEVER else self._loop.call_at(at, self._expire_due)

    def _expire_due(self) -> None:
        now = self._loop.time()
        late = [each for each in self._watched if each.deadline <= now]
        self._watched.difference_update(late)
        self._set(min((each.deadline for each in self._watched), default=NEVER))
        for each in late:
            each.expire()


HEAD_BYTES = 64 * 1024
"""Bound for bytes before a body: a server that only sends headers must not fill the memory."""
SLICE = 256 * 1024
STALE_AFTER = 1.0
"""Seconds without a request after which the server may be closing the connection."""

_GZIP = frozenset({b"gzip", b"x-gzip"})
_BODILESS = frozenset({204, 304})
"""Statuses without a body, whatever the headers say: its bytes would be taken for the next response."""


def _is_readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):  # Windows, where `select` takes any descriptor
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class PhaseTimeouts:
    __slots__ = ("between", "first_byte", "total")

    def __init__(self, first_byte: float | None, between: float | None, total: float | None) -> None:
        self.first_byte = NEVER if first_byte is None else first_byte
        self.between = NEVER if between is None else between
        self.total = NEVER if total is None else total


class Connection(asyncio.Protocol):
    """`on_free` is called when a response is complete and another request may follow, `on_lost` when the
    connection is gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        on_free: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._on_free = on_free
        self._on_lost = on_lost
        self._arrived: list[bytes] = []
        self.on_body = self._arrived.append  # the parser's callback: saves a call for each chunk of a stream
        self._parser = httptools.HttpResponseParser(self)
        # Harmless leniencies for old servers.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._response: Response | None = None
        self._limits = PhaseTimeouts(None, None, None)
        self._ends_by = NEVER
        self._bodiless_bytes = 0
        self._has_received = False
        self._has_begun = False
        self._is_sent = True
        self._is_full = False
        self._is_paused = False
        self._is_over = False
        self._is_used = False
        self.is_unwanted = False
        """Whether nobody waits for it any more: then it is closed once it is connected."""
        self.is_lost = False
        self.deadline = NEVER
        self.free_since = 0.0

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    @property
    def is_fit(self) -> bool:
        """Whether another request may be sent. Bytes that the server has already sent belong to no request:
        the connection is closed, so that they are never taken for the next response."""
        if self.is_closing:
            return False
        if _is_readable(self._transport.get_extra_info("socket").fileno()):
            self._transport.abort()
            return False
        return True

    @property
    def may_be_stale(self) -> bool:
        """Whether it was idle for so long that the server may have closed it."""
        return self._is_used and self._loop.time() - self.free_since >= STALE_AFTER

    def begin_request(
        self, request: bytes, limits: PhaseTimeouts, *, room: int, is_streamed: bool
    ) -> Response:
        """Begin to send a request. `send` sends the rest of a long one."""
        now = self._loop.time()
        response = self._response = Response(self, self._loop, room, is_streamed)
        self._limits = limits
        self._ends_by = now + limits.total
        self.deadline = min(now + limits.first_byte, self._ends_by)
        self._deadlines.watch(self)
        self._bodiless_bytes = 0
        self._has_received = self._has_begun = self._is_over = False
        self._is_used = True
        self._is_sent = len(request) <= SLICE
        if self._is_sent:
            self._transport.write(request)
        return response

    async def send(self, request: bytes) -> None:
        """Send the rest of a long request, as fast as the server reads. Ends early if the response does not
        need it: anything but a success, or one that is complete."""
        response, rest = self._response, memoryview(request)
        if self._is_sent or response is None:
            return
        for start in range(0, len(request), SLICE):
            while self._is_full and self._awaits_rest(response):
                await response.arrival()
            if not self._awaits_rest(response):
                return
            self._transport.write(rest[start : start + SLICE])
        self._is_sent = True

    def _awaits_rest(self, response: Response) -> bool:
        # If the response fills the room, the sender has to read first.
        return self._response is response and response.status in (0, 200) and response.waits <= response.room

    def abandon(self) -> None:
        """Close the connection: the rest of the response must reach no other request."""
        self._response = None
        self._deadlines.forget(self)
        self._transport.abort()

    def resume_reading(self) -> None:
        """Resume reading, once the reader has taken what waited."""
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
            self.deadline = min(self._loop.time() + self._limits.between, self._ends_by)
            self._deadlines.watch(self)

    def close(self) -> None:
        self._fail(cut_off())

    def expire(self) -> None:
        self._fail(too_slow())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_unwanted:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self._transport.abort()  # unrequested bytes must not be taken for the next response
            return
        self._has_received = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            if not response.is_whole:
                self._deliver(response)
                self._fail(not_http(), problem)
                return
            self._is_over = True
        if response.is_whole:
            self._finish(response)
        elif self._arrived:
            self._deliver(response)
            self._continue(response)
        else:
            self._count_bodiless(len(data), response)

    def eof_received(self) -> None:
        """Finish or fail the response: the server sends no more."""
        response = self._response
        if response is None:
            return
        if response.has_head and not response.has_marked_end:
            response.end()
            self._is_over = True
            self._finish(response)
        else:
            self._fail(cut_off() if self._has_received else no_response())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._response is not None:
            self._fail(cut_off() if self._has_received else no_response(), exc)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._response is not None and not self._is_sent:
            self._response.wake()

    def on_message_begin(self) -> None:
        if self._response is not None and self._response.is_whole:
            self._is_over = True  # a second response to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        response = self._response
        if response is not None and not response.has_head:
            response.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        response = self._response
        if response is None or response.has_head:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            response.headers.clear()
            return
        response.status = status
        response.has_head = True
        headers = response.headers
        if headers.get(b"content-encoding", b"").lower() in _GZIP:
            response.decoder = GzipDecoder()
        response.has_marked_end = b"content-length" in headers or headers.get(
            b"transfer-encoding", b""
        ).lower().endswith(b"chunked")

    def on_message_complete(self) -> None:
        response = self._response
        if response is not None and response.has_head and not response.is_whole:
            self._is_over = not self._parser.should_keep_alive() or response.status in _BODILESS
            self._deliver(response)
            response.end()

    def _deliver(self, response: Response) -> None:
        arrived = self._arrived
        if arrived:
            response.add(arrived[0] if len(arrived) == 1 else b"".join(arrived))
            arrived.clear()

    def _continue(self, response: Response) -> None:
        self._bodiless_bytes = 0
        if response.is_streamed:
            self.deadline = min(self._loop.time() + self._limits.between, self._ends_by)
            if not self._has_begun:
                self._has_begun = True
                self._deadlines.watch(self)  # `between` may be shorter than `first_byte`
        if response.waits > response.room:
            self._pause_reading()
        response.wake_if_due()

    def _count_bodiless(self, size: int, response: Response) -> None:
        self._bodiless_bytes += size
        if self._bodiless_bytes > HEAD_BYTES:
            self._fail(not_http())
        else:
            response.wake_if_due()

    def _pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
            self.deadline = self._ends_by  # the silence to come is not the server's fault

    def _finish(self, response: Response) -> None:
        self._response = None
        self._deadlines.forget(self)
        if self._is_over or not self._is_sent or self._transport.is_closing():
            self._transport.abort()
        else:
            self.free_since = self._loop.time()
            # One loop iteration later: bytes behind the response are read first, and close the connection.
            self._loop.call_soon(self._free)
        response.wake()

    def _free(self) -> None:
        if not self.is_closing:
            self._on_free(self)

    def _fail(self, failure: UpstreamFailure, cause: BaseException | None = None) -> None:
        response, self._response = self._response, None
        self._deadlines.forget(self)
        self._transport.abort()
        if response is not None:
            failure.__cause__ = cause
            response.fail(failure)
