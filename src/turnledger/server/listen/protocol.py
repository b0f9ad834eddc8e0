"""uvicorn's HTTP, with bounds on what a client can make it wait for or buffer.

Also serves clients that use HTTP/1.0, or request a protocol upgrade.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turnledger.server.config.settings import ServerLimits
from turnledger.server.errors import RequestRefused, error_body, kind_of
from turnledger.server.ops.logs import log, log_unexpected
from turnledger.server.wire.client_stream import CUT

HEAD_BYTES = 64 * 1024
"""Bytes of the request line and the headers, and again of the trailers."""
HEAD_FIELDS = 100
"""Headers of a request, and again trailers."""

_UPGRADE_HEADERS = frozenset({b"connection", b"upgrade", b"http2-settings"})
_FIELD_OVERHEAD = len(b": \r\n")


def bounded_http(limits: ServerLimits) -> type[BoundedHttp]:
    waits = {name: getattr(limits, name) for name in ("head_wait", "idle_wait", "send_wait")}
    return type("BoundedHttp", (BoundedHttp,), waits)


class BoundedHttp(HttpToolsProtocol):
    """A connection. The guard sees a request when its headers are complete; until then this class bounds its
    bytes and its time, and those of a client that does not read its response. Some clients request HTTP/2
    with every request (`Upgrade: h2c`, as Java's does). The parser takes that for the end of HTTP and the
    body for something else, so such a request is parsed again without its upgrade headers."""

    head_wait = ServerLimits().head_wait
    idle_wait = ServerLimits().idle_wait
    send_wait = ServerLimits().send_wait

    _is_in_head = False
    _head_bytes = 0
    _head_fields = 0
    _unparsed_bytes = 0
    """Bytes since the parser last called back: it buffers a field until its end."""
    _ignores_input = False
    """Whether further input is dropped: the connection ends with the current response."""
    _plain_head: bytes | None = None
    """The head of a request for another protocol, without its upgrade headers."""
    _current: RequestResponseCycle | None = None
    """The request that is being served, or was last. The base class knows the latest, which may have to
    wait."""
    _running = 0
    _head_timer: asyncio.TimerHandle | None = None
    """Fires when a request that has begun takes too long."""
    _stall_timer: asyncio.TimerHandle | None = None
    """Fires when the client reads none of the waiting bytes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive = self.idle_wait  # type: ignore[assignment]
        self.timeout_keep_alive_task = self.loop.call_later(self.idle_wait, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._current is not None and not self._current.response_complete:
            _disconnect(self._current)
        self._unset_keepalive_if_required()
        self._cancel_head_timer()
        self._cancel_stall_timer()
        super().connection_lost(exc)
        self._release_requests()

    @property
    def is_responding(self) -> bool:
        # Before the first request it is None, despite its type.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = self._head_fields = self._unparsed_bytes = 0
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"cut": self._cut}}

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. The parser reports trailers here, too; they are counted and dropped, since a field
        after the body must not authorize or route a request."""
        self._head_fields += 1
        self._count(len(name) + len(value) + _FIELD_OVERHEAD)
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_bytes = self._head_fields = 0
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._plain_head = self._head_without_upgrade()
            return
        self._cancel_head_timer()
        try:
            super().on_headers_complete()
        except (httptools.HttpParserError, UnicodeError, AttributeError):  # the last: a target without a path
            raise _invalid_http_error(
                "The target of the request is not a valid path or URL. Percent-encode it."
            ) from None
        if self.scope["http_version"] == "1.0":
            self.cycle.waiting_for_100_continue = False
            self.cycle.__class__ = Http10Cycle

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._plain_head is None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_unsent()

    def data_received(self, data: bytes) -> None:
        """Parse the input, and refuse a request that never completes its head."""
        self._unset_keepalive_if_required()
        if self._ignores_input:
            return
        self._unparsed_bytes += len(data)
        try:
            self._parse(data)
            if self._unparsed_bytes > HEAD_BYTES + len(data):
                raise _head_too_large_error()
        except httptools.HttpParserError as problem:
            self._refuse(_cause_of(problem))
            return
        except (RequestRefused, MemoryError) as problem:
            self._refuse(problem)
            return
        if self.transport.is_closing():
            return
        # Input between requests must become a request in time, however slowly it arrives: half a head, empty
        # lines, or the rest of a refused body.
        if self._head_timer is None and (self._current is None or self._current.response_complete):
            self._head_timer = self.loop.call_later(self.head_wait, self._end_slow_request)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall_timer()
        self._watch_unsent()

    # Requests that arrive too slowly.

    def _end_slow_request(self) -> None:
        self._head_timer = None
        log.info("request_too_slow", after=self.head_wait)
        if self._is_in_head:
            message = (
                f"The request headers did not arrive within {self.head_wait:g} seconds. Send them at once."
            )
            problem = RequestRefused(408, "head_too_slow", message)
            self.transport.write(_encode_refusal(problem))
        self.transport.close()
        self._watch_unsent()

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # Responses that the client does not read.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._current = cycle
        self._running += 1
        task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._running -= 1
        self._watch_unsent()
        self._release_requests()

    def _release_requests(self) -> None:
        """Break the cycles between a lost connection and its requests once all have ended: the garbage
        collector would keep them too long."""
        if self not in self.connections and not self._running:
            self.pipeline.clear()
            self.cycle = self._current = None  # type: ignore[assignment]
            self.scope = self.headers = None  # type: ignore[assignment]

    def _watch_unsent(self) -> None:
        """Bound the time for the rest of a response that is complete or cut short, and for any that its
        client does not read."""
        if self._stall_timer is not None or self not in self.connections:
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent and (self.flow.write_paused or self._response_is_over()):
            self._stall_timer = self.loop.call_later(self.send_wait, self._check_stalled, unsent)

    def _response_is_over(self) -> bool:
        return self._current is None or self._current.response_complete or self.transport.is_closing()

    def _check_stalled(self, unsent: int) -> None:
        self._stall_timer = None
        if self.transport.get_write_buffer_size() < unsent:  # the client reads slowly
            self._watch_unsent()
        else:
            log.info("client_does_not_read", after=self.send_wait)
            self._cut()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _cut(self) -> None:
        if self._current is not None and not self._current.response_complete:
            _disconnect(self._current)
        self.transport.abort()

    # Requests that cannot be parsed.

    def _count(self, size: int) -> None:
        self._unparsed_bytes = 0
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES or self._head_fields > HEAD_FIELDS:
            raise _head_too_large_error()

    def _refuse(self, problem: BaseException) -> None:
        """Respond to a request that cannot be parsed, and read no further. A response to an earlier request
        goes first: the client would take this one for it."""
        if isinstance(problem, RequestRefused):
            log.warning("request_refused", code=problem.code, problem=str(problem))
        else:
            log_unexpected(problem)
        self._ignores_input = True
        if self._current is not None and not self._current.response_complete:
            cycle, self._current.keep_alive = self.cycle, False
            if self._current is not cycle or not cycle.more_body or cycle.response_started:
                return
        self.transport.write(_encode_refusal(problem))
        self.transport.close()
        self._watch_unsent()

    # Protocol upgrades.

    def _parse(self, data: bytes) -> None:
        """Feed the parser; a request with an upgrade is fed again without it."""
        rest = memoryview(data)
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            if self._plain_head is None:  # CONNECT, which is refused like any unknown method
                return
            head, self._plain_head = self._plain_head, None
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(head)

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % each for each in self.headers if each[0] not in _UPGRADE_HEADERS]
        return b"\r\n".join([*lines, b"", b""])


def _cause_of(problem: httptools.HttpParserError) -> BaseException:
    """Return the error inside a callback of the parser, or else that the input is not HTTP."""
    if isinstance(problem, httptools.HttpParserCallbackError) and problem.__context__ is not None:
        return problem.__context__
    return _invalid_http_error("The request is not valid HTTP. Send HTTP/1.1.")


def _invalid_http_error(message: str) -> RequestRefused:
    return RequestRefused(400, "invalid_http", message)


def _head_too_large_error() -> RequestRefused:
    message = f"Request headers exceed {HEAD_BYTES} bytes or {HEAD_FIELDS} fields. Send fewer."
    return RequestRefused(431, "head_too_large", message)


def _encode_refusal(problem: BaseException) -> bytes:
    """Encode a whole response, for a request that does not reach the application."""
    kind, body = kind_of(problem), error_body(problem)
    fields = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *kind.headers,
        (b"connection", b"close"),
    ]
    lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}".encode()]
    return b"\r\n".join([*lines, *(b"%s: %s" % field for field in fields), b"", body])


def _disconnect(cycle: RequestResponseCycle) -> None:
    cycle.disconnected = True
    cycle.message_event.set()


class Http10Cycle(RequestResponseCycle):
    """Responds in HTTP/1.0, which has no chunks: a response without a length ends with its connection."""

    _is_endless = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            if b"content-length" not in names:
                self._is_endless, self.chunked_encoding = True, False
        elif self._is_endless:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
