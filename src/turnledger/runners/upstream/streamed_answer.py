"""One streamed answer of an upstream: its status, the payloads of its events or its error, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from turnledger.errors import MalformedAnswer, ModelError, ModelUnavailable
from turnledger.model.text.sse import EventSplitter, fields_of
from turnledger.runners.chat_model import failure_of
from turnledger.runners.error_cleaner import ErrorCleaner, SecretFilter
from turnledger.runners.http.response import Response

EVENT_BYTES = 16 * 1024 * 1024
"""Bound for one event: an endless line must not fill the memory."""


class EventStream(EventSplitter):
    """Yields the `data` of each event; skips other fields, and empty data."""

    __slots__ = ()

    def __init__(self, limit: int = EVENT_BYTES) -> None:
        super().__init__(limit, _too_long)

    def feed(self, piece: bytes) -> list[bytes]:
        """Add bytes; return the payloads they complete. Raises MalformedAnswer if an event is too long."""
        if self.is_between_events and piece[:6] == b"data: " and piece[-2:] == b"\n\n":
            payloads = piece[6:-2].split(b"\n\ndata: ")
            # Most pieces are events of one line: then these are all line ends.
            if piece.count(b"\n") == 2 * len(payloads) and b"\r" not in piece and b"" not in payloads:
                return payloads
        payloads = []
        for event in self.split(piece):
            if event[:6] == b"data: " and b"\n" not in event:
                payload = event[6:]
            elif event:
                payload = _payload(event)
            else:
                continue
            if payload:
                payloads.append(payload)
        return payloads

    def end(self) -> list[bytes]:
        """Return the payload of a last event without its blank line, if there is one."""
        payload = _payload(self.rest())
        return [payload] if payload else []


def _payload(event: bytes) -> bytes:
    """Return the data of one event on one line: line ends in JSON are blanks."""
    return b" ".join(fields_of(event).get(b"data", ()))


def _too_long(limit: int) -> MalformedAnswer:
    return MalformedAnswer(f"The model sent an event of more than {limit} bytes. Check its server.")


ANSWER_BYTES = 16 * 1024 * 1024
ERROR_BYTES = 64 * 1024
ERROR_SECONDS = 2.0
"""Bounds for reading an error; beyond them the status has to suffice."""


_PLAIN = frozenset({None, b"", b"chunked", b"identity"})


def is_encoded(response: Response) -> bool:
    """Whether the body has an encoding without a decoder."""
    headers = response.headers
    if response.decoder is not None:
        return headers.get(b"transfer-encoding", b"").strip().lower() not in _PLAIN
    if b"content-encoding" not in headers and headers.get(b"transfer-encoding") in _PLAIN:
        return False
    named = [
        *headers.get(b"content-encoding", b"").split(b","),
        *headers.get(b"transfer-encoding", b"").split(b","),
    ]
    return any(each.strip().lower() not in _PLAIN for each in named)


async def read_whole(response: Response) -> bytes:
    """Read a body, and release the connection. Raises a ModelError."""
    body = await _read(response, ANSWER_BYTES)
    if len(body) > ANSWER_BYTES:
        raise MalformedAnswer(f"The model's answer has more than {ANSWER_BYTES} bytes. Check its server.")
    return body


async def read_error(response: Response, cleaner: ErrorCleaner) -> dict[str, Any]:
    """Read the error object of a body, cleaned, and release the connection. Returns an empty one if there is
    none, or it is too long or too slow."""
    try:
        async with asyncio.timeout(ERROR_SECONDS):
            body = await _read(response, ERROR_BYTES)
    except (ModelError, TimeoutError):
        return {}
    return cleaner.read(body[:ERROR_BYTES])


async def _read(response: Response, limit: int) -> bytes:
    try:
        return await response.body(limit)
    finally:
        response.release()


_DONE = b"[DONE]"
_NO_STREAMS = frozenset({b"application/json", b"text/html"})


class StreamedAnswer:
    """Sends the request when entered, yields payloads as they arrive, and releases the connection.

    `lingers` is how many seconds the connection has to end behind the answer, so that it can be reused.
    """

    __slots__ = ("_cleaner", "_events", "_is_done", "_lingers", "_open", "_response")

    def __init__(
        self, open: Callable[[], Awaitable[Response]], lingers: float, cleaner: ErrorCleaner
    ) -> None:
        self._open = open
        self._cleaner = cleaner
        self._lingers = lingers
        self._events = EventStream()
        self._is_done = False

    async def __aenter__(self) -> StreamedAnswer:
        self._response = response = await self._open()
        kind = response.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind in _NO_STREAMS:
            error = await read_error(response, self._cleaner)
            if error:
                raise failure_of(error)
            raise MalformedAnswer(f"Expected a stream from the model, got {kind.decode()}. Check its server.")
        return self

    async def __aexit__(self, *_: object) -> None:
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
                    await asyncio.sleep(0)  # the rest may be a thousand times as long when decoded
            elif response.is_whole:
                payloads = self._at_end()
            else:
                await response.arrival()
                continue
            if _DONE in payloads:
                del payloads[payloads.index(_DONE) :]
                self._is_done = True
            if payloads:
                return self._cleaner.clean_payloads(payloads)
        if not response.is_whole:
            await self._await_end()
        raise StopAsyncIteration

    def _at_end(self) -> list[bytes]:
        """Return the last payloads. An end that the transport does not mark may be a cut: then only the
        model's own mark counts."""
        self._is_done = True
        payloads = self._events.end()
        if _DONE not in payloads and not self._response.has_marked_end:
            raise ModelUnavailable("The connection to the model ended before its answer did. Try again.")
        return payloads

    async def _await_end(self) -> None:
        """Wait for the end of the body, so that the connection can be reused: the answer is complete."""
        response = self._response
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(self._lingers):
                while not response.is_whole:
                    # A piece may be compressed: let the timeout act between two of them.
                    await (response.arrival() if response.take() is None else asyncio.sleep(0))


class RawAnswer:
    """Sends the request when entered, yields the bytes of its response as they arrive, without the secrets of
    the upstream, and releases the connection."""

    __slots__ = ("_filter", "_open", "_response")

    def __init__(self, open: Callable[[], Awaitable[Response]], secrets: SecretFilter) -> None:
        self._open = open
        self._filter = secrets

    async def __aenter__(self) -> RawAnswer:
        self._response = await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._response.release()

    @property
    def content_type(self) -> bytes:
        return self._response.headers.get(b"content-type", b"application/octet-stream")

    def __aiter__(self) -> RawAnswer:
        return self

    async def __anext__(self) -> bytes:
        shown = b""
        while not shown:
            piece = self._response.take()
            if piece is not None:
                shown = self._filter.feed(piece)
            elif not self._response.is_whole:
                await self._response.arrival()
            elif not (shown := self._filter.end()):
                raise StopAsyncIteration
        if self._response.decoder is not None:
            await asyncio.sleep(0)  # a small piece may be a thousand times as long when decoded
        return shown
