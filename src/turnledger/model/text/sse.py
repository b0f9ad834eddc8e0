"""Server-sent events (`text/event-stream`), parsed from bytes as they arrive. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable

_BOM = b"\xef\xbb\xbf"
_fields = re.compile(rb"^(data|event|id|retry)(?:: ?(.*))?$", re.MULTILINE).finditer


class EventSplitter:
    """Splits a stream into events, however its pieces are cut. A long event in many pieces is joined only
    once, so the cost stays linear. Lines may end in LF, CRLF or CR.

    `too_long` makes the error for an event that exceeds the limit."""

    __slots__ = ("_is_in_line_end", "_last", "_length", "_limit", "_pieces", "_too_long")

    def __init__(self, limit: int, too_long: Callable[[int], Exception]) -> None:
        self._limit = limit
        self._too_long = too_long
        self._pieces: list[bytes] = []
        self._last = b""
        self._length = 0
        self._is_in_line_end = False

    @property
    def is_between_events(self) -> bool:
        """Whether the next piece begins with a new event."""
        return not self._pieces and not self._is_in_line_end

    def split(self, chunk: bytes) -> list[bytes]:
        """Return the events that this piece completes, their lines joined by LF; some may be empty. Raises
        the error of `too_long`."""
        if b"\r" in chunk or self._is_in_line_end:
            chunk = self._with_plain_line_ends(chunk)
        pieces = self._pieces
        if not pieces and chunk[-2:] == b"\n\n":
            return chunk.split(b"\n\n")
        if b"\n\n" not in (self._last + chunk if pieces else chunk):
            if chunk:
                self._hold(chunk)
            return []
        if pieces:
            pieces.append(chunk)
            chunk = b"".join(pieces)
            pieces.clear()
            self._length = 0
        events = chunk.split(b"\n\n")
        rest = events.pop()
        if rest:
            self._hold(rest)
        return events

    def rest(self) -> bytes:
        """Return the last event at the end of a stream, if its blank line is missing."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return rest

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._last = piece[-1:]
        self._length += len(piece)
        if self._length > self._limit:
            raise self._too_long(self._limit)

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        if self._is_in_line_end and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a CRLF
        self._is_in_line_end = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def fields_of(event: bytes) -> dict[bytes, list[bytes]]:
    """Return the values of each field of an event. Comments and unknown fields are skipped: there may be
    millions of lines."""
    fields: dict[bytes, list[bytes]] = {}
    for name, value in map(re.Match.groups, _fields(event.removeprefix(_BOM))):
        fields.setdefault(name, []).append(value or b"")
    return fields
