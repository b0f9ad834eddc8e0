"""Bodies compressed with gzip, decoded as they are read: a small one may hold gigabytes."""

from __future__ import annotations

import zlib

from turnledger.errors import MalformedAnswer

_WITH_HEADER = 16 + zlib.MAX_WBITS


class GzipDecoder:
    """Add bytes and read what they hold, in turns; a body may have several members."""

    __slots__ = ("_member", "_rest", "waits")

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_WITH_HEADER)
        self._rest = b""
        self.waits = False
        """Whether there may be more to read before more is added."""

    @property
    def is_complete(self) -> bool:
        """Whether all that was added ends where a body may end."""
        return self._member.eof and not self._rest

    def add(self, piece: bytes) -> None:
        self._rest += piece
        self.waits = True

    def read(self, limit: int) -> bytes:
        """Decode at most so many bytes. Raises MalformedAnswer."""
        if self._member.eof and self._rest:
            self._member = zlib.decompressobj(_WITH_HEADER)
        member = self._member
        try:
            decoded = member.decompress(self._rest, limit)
        except zlib.error:
            raise MalformedAnswer("The model's answer is not the gzip that its headers announce.") from None
        self._rest = member.unused_data if member.eof else member.unconsumed_tail
        self.waits = bool(self._rest) or len(decoded) == limit
        return decoded
