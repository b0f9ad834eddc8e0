"""One streamed answer of an upstream: from its status to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import TracebackType

from turnledger.errors import MalformedAnswer, ModelError, ModelUnavailable
from turnledger.runners.chat_model import failure_of
from turnledger.runners.event_stream import EventStream
from turnledger.runners.http.response import Response
from turnledger.runners.upstream_body import read_error

_DONE = b"[DONE]"
_NO_STREAMS = frozenset({b"application/json", b"text/html"})


class StreamedAnswer:
    """Opens an answer when it is entered, gives its payloads as they arrive, and lets go of the connection.

    `lingers` is how many seconds the connection is given to end behind the answer, so that it can be used
    again.
    """

    __slots__ = ("_events", "_is_done", "_lingers", "_open", "_response")

    def __init__(self, open: Callable[[], Awaitable[Response]], lingers: float) -> None:
        self._open = open
        self._lingers = lingers
        self._events = EventStream()
        self._is_done = False

    async def __aenter__(self) -> StreamedAnswer:
        self._response = response = await self._open()
        kind = response.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind in _NO_STREAMS:
            error = await read_error(response)
            if error:
                raise failure_of(error)
            raise MalformedAnswer(f"The model was asked for a stream and sent {kind.decode()}.")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.release()

    def __aiter__(self) -> StreamedAnswer:
        return self

    async def __anext__(self) -> list[bytes]:
        while not self._is_done:
            payloads = self._taken()
            if payloads:
                return payloads
            if payloads is None:
                await self._response.arrival()
        await self._await_end()
        raise StopAsyncIteration

    async def push(self, take: Callable[[list[bytes]], None]) -> None:
        """Have each batch taken the moment it arrives, with the caller's context but outside its task: being
        woken for each costs a fifth of what is to be done with it. Returns or raises as iterating would; what
        `take` raises ends it. Once its task is cancelled, nothing more is taken."""
        ended = asyncio.get_running_loop().create_future()

        def arrived() -> None:
            if ended.done():
                return
            try:
                while not self._is_done:
                    payloads = self._taken()
                    if payloads is None:
                        return
                    if payloads:
                        take(payloads)
            except Exception as problem:
                ended.set_exception(problem)
            else:
                ended.set_result(None)

        arrived()
        self._response.listener = partial(copy_context().run, arrived)
        try:
            await ended
        finally:
            self._response.listener = None
            if not ended.cancelled():
                ended.exception()  # which is lost on who was cancelled at the same moment
        await self._await_end()

    def _taken(self) -> list[bytes] | None:
        """The payloads of what has arrived, up to the end; None if that is nothing."""
        response = self._response
        piece = response.take()
        if piece is not None:
            payloads = self._events.feed(piece)
        elif response.is_whole:
            payloads = self._at_end()
        else:
            return None
        if _DONE in payloads:
            del payloads[payloads.index(_DONE) :]
            self._is_done = True
        return payloads

    def _at_end(self) -> list[bytes]:
        """What is left when no more bytes come. An end that the transport does not mark may be a cut: then
        only the model's own mark tells."""
        self._is_done = True
        payloads = self._events.end()
        if _DONE not in payloads and not self._response.has_marked_end:
            raise ModelUnavailable("The connection to the model ended before its answer did. Try again.")
        return payloads

    async def _await_end(self) -> None:
        """Wait for the end of the body, so that the connection can be used again: the answer is whole."""
        response = self._response
        if response.is_whole:
            return
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(self._lingers):
                while not response.is_whole:
                    if response.take() is None:
                        await response.arrival()
