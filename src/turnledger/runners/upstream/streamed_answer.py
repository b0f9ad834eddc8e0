"""One streamed answer of an upstream: from its status to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType

from turnledger.errors import MalformedAnswer, ModelError, ModelUnavailable
from turnledger.runners.chat_model import failure_of
from turnledger.runners.http.response import Response
from turnledger.runners.upstream.response_body import read_error
from turnledger.runners.upstream.sse import EventStream

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
        response = self._response
        while not self._is_done:
            piece = response.take()
            if piece is not None:
                payloads = self._events.feed(piece)
                if response.decoder is not None and response.decoder.waits:
                    await asyncio.sleep(0)  # what is left may be a thousand times as long
            elif response.is_whole:
                payloads = self._at_end()
            else:
                await response.arrival()
                continue
            if _DONE in payloads:
                del payloads[payloads.index(_DONE) :]
                self._is_done = True
            if payloads:
                return payloads
        if not response.is_whole:
            await self._await_end()
        raise StopAsyncIteration

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
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(self._lingers):
                while not response.is_whole:
                    # A piece may be compressed: the timeout has its chance between two of them.
                    await (response.arrival() if response.take() is None else asyncio.sleep(0))
