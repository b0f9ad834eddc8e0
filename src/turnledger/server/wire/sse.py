"""Streams: responses that are sent while they are made, as server-sent events or as a file.

`Streams.send` covers the whole life of one. It counts against the owner's limit, ends when the client leaves
or the reader's token ends, and sends comments while it is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from turnledger.errors import TurnledgerError
from turnledger.model.event import Event, TurnFinished
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import Quotas
from turnledger.server.access.token_watch import TokenWatch
from turnledger.server.errors import shutdown_error
from turnledger.server.models.redaction import redact_failure
from turnledger.server.ops.metrics import Metrics
from turnledger.server.wire.client_stream import ClientStream, Headers, cut_of
from turnledger.server.wire.events import COMMENT, HEARTBEAT_EVERY, error_event

EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


async def redact_events(principal: Principal, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """Yield the events of a turn, without details of a failure for a narrowed caller."""
    async for event in events:
        if principal.is_narrowed and isinstance(event, TurnFinished):
            event = replace(event, failure=redact_failure(event.failure))
        yield event


class Stream(NamedTuple):
    pieces: AsyncIterator[bytes]
    has_heartbeat: bool = False
    """Whether it sends comments from the start, also before its first piece."""
    file: Headers | None = None
    """The headers of a file. A file that fails is cut off, so that no client takes a part for the whole."""
    error: Callable[[BaseException], bytes] = error_event
    """Encodes an error after the first piece."""


Source: TypeAlias = Callable[[Principal, Request], AbstractAsyncContextManager[Stream]]


class StreamEndpoint:
    """A plain ASGI application that responds with a stream."""

    def __init__(self, streams: Streams, source: Source) -> None:
        self._streams = streams
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._streams.send(self._source, scope, receive, send)


class Streams:
    """The streams of this process. They share one heartbeat timer, which runs only while a stream is open: a
    timer for each would cost more than a short stream."""

    def __init__(
        self,
        watch: TokenWatch,
        quotas: Quotas,
        metrics: Metrics,
        patience: float,
        *,
        heartbeat_every: float = HEARTBEAT_EVERY,
    ) -> None:
        self._watch = watch
        self._quotas = quotas
        self._metrics = metrics
        self._patience = patience
        self._heartbeat_every = heartbeat_every
        self._kept_alive: dict[ClientStream, Headers | Callable[[], Headers | None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, source: Source, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a stream until it ends or the client leaves, at the client's pace. An error before the first
        piece is raised. A later one is sent as the last event; a file is cut off."""
        request = Request(scope, receive)
        principal: Principal = request.state.principal
        with self._quotas.admit_stream(principal.caller):
            async with source(principal, request) as stream:
                await self._send(stream, principal, ClientStream(send, receive, cut=cut_of(scope)))

    async def _send(self, stream: Stream, principal: Principal, client: ClientStream) -> None:
        is_file, headers = stream.file is not None, [EVENTS] if stream.file is None else stream.file
        if not is_file:
            self._metrics.streams.inc()
        if stream.has_heartbeat:
            self.keep_alive(client, headers)
        try:
            # The last bytes are sent outside: a revoked reader gets as much time for them as any other.
            with self._watch.while_authorized(principal):
                async with client.cancel_on_disconnect():
                    async for piece in stream.pieces:
                        if not client.has_begun:
                            client.begin(200, headers)
                        await client.write_at_pace(piece)
                    if not client.has_begun:
                        client.begin(200, headers)
                    client.end()
        except TurnledgerError as problem:
            if is_file or not client.has_begun:
                raise
            client.end(stream.error(problem))
        except asyncio.CancelledError:
            if not is_file and client.has_begun:
                client.end(stream.error(shutdown_error()))
            raise
        finally:
            try:
                await client.close(self._patience)
            finally:  # also when this wait is cancelled
                self.stop_keep_alive(client)
                if not is_file:
                    self._metrics.streams.dec()

    # Heartbeats.

    def keep_alive(self, client: ClientStream, headers: Headers | Callable[[], Headers | None] = ()) -> None:
        """Send comments while nothing else is sent. `headers` are for a response that begins with a comment;
        a function returns None as long as the response must not begin."""
        self._kept_alive[client] = headers
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._heartbeat_every, self._tick)

    def stop_keep_alive(self, client: ClientStream) -> None:
        """Stop the comments. The timer stays for the next stream, or ends by itself."""
        self._kept_alive.pop(client, None)

    def _tick(self) -> None:
        self._timer = None
        self.send_heartbeats()
        if self._kept_alive:
            self._timer = asyncio.get_running_loop().call_later(self._heartbeat_every, self._tick)

    def send_heartbeats(self) -> None:
        for client, headers_ in list(self._kept_alive.items()):
            headers = headers_() if callable(headers_) else headers_
            if headers is not None:
                client.send_heartbeat(COMMENT, headers)
