"""One streamed answer of an upstream: from its status to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

import aiohttp

from turnledger.errors import MalformedAnswer, ModelUnavailable
from turnledger.runners.chat_model import failure_of
from turnledger.runners.event_stream import EventStream
from turnledger.runners.upstream_body import has_marked_end, read_error
from turnledger.runners.upstream_failures import of_answer

_DONE = b"[DONE]"
_NO_STREAMS = frozenset({"application/json", "text/html"})


class StreamedAnswer:
    """Opens an answer when it is entered, gives its payloads as they arrive, and lets go of the connection.

    `between` is how many seconds may pass without a byte once the first has come, `lingers` how many the
    connection is given to end behind the answer, so that it can be used again.
    """

    __slots__ = (
        "_between",
        "_content",
        "_events",
        "_has_begun",
        "_is_done",
        "_lingers",
        "_open",
        "_response",
    )

    def __init__(
        self,
        open: Callable[[], Awaitable[aiohttp.ClientResponse]],
        between: float | None,
        lingers: float,
    ) -> None:
        self._open = open
        self._between = between
        self._lingers = lingers
        self._events = EventStream()
        self._has_begun = False
        self._is_done = False

    async def __aenter__(self) -> StreamedAnswer:
        self._response = response = await self._open()
        self._content = response.content
        if response.content_type in _NO_STREAMS:
            error = await read_error(response)
            if error:
                raise failure_of(error)
            raise MalformedAnswer(f"The model was asked for a stream and sent {response.content_type}.")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.release()

    def __aiter__(self) -> StreamedAnswer:
        return self

    async def __anext__(self) -> list[bytes]:
        while not self._is_done:
            try:
                piece = await self._content.readany()
            except (aiohttp.ClientError, TimeoutError) as problem:
                raise of_answer(problem) from problem
            if not self._has_begun:
                self._begin()
            payloads = self._events.feed(piece) if piece else self._at_end()
            if _DONE in payloads:
                del payloads[payloads.index(_DONE) :]
                self._is_done = True
            if payloads:
                return payloads
        await self._await_end()
        raise StopAsyncIteration

    def _begin(self) -> None:
        """The first byte is there: from now on, a silence has another limit."""
        self._has_begun = True
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = self._between
            connection.protocol.start_timeout()

    def _at_end(self) -> list[bytes]:
        """What is left when no more bytes come. An end that the transport does not mark may be a cut: then
        only the model's own mark tells."""
        self._is_done = True
        payloads = self._events.end()
        if _DONE not in payloads and not has_marked_end(self._response):
            raise ModelUnavailable("The connection to the model ended before its answer did. Try again.")
        return payloads

    async def _await_end(self) -> None:
        """Read to the end of the body, which mostly is there already."""
        if self._content.is_eof():
            return
        try:
            async with asyncio.timeout(self._lingers):
                while await self._content.readany():
                    pass
        except (aiohttp.ClientError, TimeoutError):
            self._response.close()  # the answer is whole; the connection is not used again
