"""The response of an upstream as far as it has arrived. Gzip is decoded within a bound: a small body may hold
gigabytes."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

from turnledger.errors import MalformedAnswer
from turnledger.runners.upstream.failures import UpstreamFailure, cut_off

if TYPE_CHECKING:
    from turnledger.runners.http.connection import Connection


_WITH_HEADER = 16 + zlib.MAX_WBITS
_STEP = 4096
"""Bytes decoded at once. At the end of a member, zlib copies all input behind it: with many small members,
that would be quadratic."""


class GzipDecoder:
    """Decodes a body, which may have several members: add bytes and read, in turns."""

    __slots__ = ("_at", "_member", "_rest", "waits")

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_WITH_HEADER)
        self._rest = b""
        self._at = 0
        self.waits = False
        """Whether to read again before adding more."""

    @property
    def is_complete(self) -> bool:
        """Whether the bytes so far end where a body may end."""
        return self._member.eof and self._at == len(self._rest)

    def add(self, piece: bytes) -> None:
        self._rest, self._at = self._rest[self._at :] + piece, 0
        self.waits = True

    def read(self, limit: int) -> bytes:
        """Decode at most `limit` bytes. Raises MalformedAnswer."""
        piece = self._rest[self._at : self._at + _STEP]
        if self._member.eof and piece:
            self._member = zlib.decompressobj(_WITH_HEADER)
        member = self._member
        try:
            decoded = member.decompress(piece, limit)
        except zlib.error:
            raise MalformedAnswer(
                "The model's answer is not the gzip that its headers announce. Check its server."
            ) from None
        self._at += len(piece) - len(member.unused_data if member.eof else member.unconsumed_tail)
        self.waits = self._at < len(self._rest) or len(decoded) == limit
        return decoded


PIECES_BYTES = 256 * 1024
"""Bytes that may wait for a reader before its connection is held up."""


class Response:
    """Filled by its connection, and read by one task.

    With `is_streamed` the reader is woken for the head and for everything that arrives; without, only for the
    complete body, and for the head of an error. When more than `room` bytes wait, the reader is woken in any
    case, and the connection held up until they are taken. The caller has to `release` it, even when
    cancelled: no half-read response is left to the next request.
    """

    __slots__ = (
        "_connection",
        "_failure",
        "_loop",
        "_pieces",
        "_waiting",
        "decoder",
        "has_head",
        "has_marked_end",
        "headers",
        "is_streamed",
        "is_whole",
        "room",
        "status",
        "waits",
    )

    def __init__(
        self, connection: Connection, loop: asyncio.AbstractEventLoop, room: int, is_streamed: bool
    ) -> None:
        self._connection: Connection | None = connection
        self._loop = loop
        self._failure: UpstreamFailure | None = None
        self._pieces: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None
        self.room = room
        self.is_streamed = is_streamed
        self.waits = 0
        """Bytes that have arrived and were not taken."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        """With names in lower case."""
        self.decoder: GzipDecoder | None = None
        """Of a compressed body; `room` and `waits` count compressed bytes."""
        self.has_head = False
        self.has_marked_end = False
        """Whether the transport distinguishes a complete body from a truncated one."""
        self.is_whole = False

    async def wait_for_head(self) -> None:
        """Wait for the head; without `is_streamed`, for all of a success. Raises UpstreamFailure."""
        while not self._is_begun:
            await self.arrival()
        if self._failure is not None and not self.has_head:
            raise self._failure

    @property
    def _is_begun(self) -> bool:
        if self._failure is not None or self.is_whole or self.waits > self.room:
            return True
        return self.has_head and (self.is_streamed or self.status != 200)

    def take(self) -> bytes | None:
        """Return what has arrived since; None if nothing has, or at the end. After everything that came
        before a failure, raises a ModelError."""
        return self._take_arrived() if self.decoder is None else self._decode(self.decoder)

    def _decode(self, decoder: GzipDecoder) -> bytes | None:
        while True:
            if not decoder.waits:
                piece = self._take_arrived()
                if piece is None:
                    if self.is_whole and not decoder.is_complete:
                        raise cut_off().error
                    return None
                decoder.add(piece)
            decoded = decoder.read(PIECES_BYTES)
            if decoded:
                return decoded

    def _take_arrived(self) -> bytes | None:
        pieces = self._pieces
        if pieces:
            taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            is_paused, self.waits = self.waits > self.room, 0
            if is_paused and self._connection is not None:
                self._connection.resume_reading()
            return taken
        if self._failure is not None:
            raise self._failure.error from self._failure.__cause__
        return None

    def arrival(self) -> asyncio.Future[None]:
        """Return a future for the next arrival, to be awaited when there is nothing to take."""
        waiting = self._waiting = self._loop.create_future()
        return waiting

    async def body(self, limit: int) -> bytes:
        """Return the body, cut beyond the limit. Raises a ModelError."""
        self.room = limit
        while not self.is_whole and self.waits <= limit and self._failure is None:
            await self.arrival()
        if self._failure is not None and self.waits <= limit:
            raise self._failure.error from self._failure.__cause__
        body = b"".join(self._pieces)
        if self.decoder is None or len(body) > limit:
            return body
        return self._decode_whole(self.decoder, body, limit)

    @staticmethod
    def _decode_whole(decoder: GzipDecoder, body: bytes, limit: int) -> bytes:
        """Decode a complete body, up to a byte more than the limit."""
        decoded = bytearray()
        decoder.add(body)
        while decoder.waits and len(decoded) <= limit:
            decoded += decoder.read(limit + 1 - len(decoded))
        if len(decoded) <= limit and not decoder.is_complete:
            raise cut_off().error
        return bytes(decoded)

    def release(self) -> None:
        """Release the connection, which is closed unless the response is complete."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.waits += len(piece)

    def end(self) -> None:
        self.is_whole = True
        self._connection = None

    def fail(self, failure: UpstreamFailure) -> None:
        self._failure = failure
        self._connection = None
        self.wake()

    def wake_if_due(self) -> None:
        """Wake the reader if what it waits for has arrived."""
        if self._waiting is not None and self._is_begun:
            self.wake()

    def wake(self) -> None:
        waiting = self._waiting
        if waiting is not None:
            self._waiting = None
            if not waiting.done():
                waiting.set_result(None)
