"""Events as a server sends them (`text/event-stream`), taken from its bytes as they come."""

from __future__ import annotations

import re
from typing import TypeAlias

from turnledger.client.core.steps import MOST_BYTES
from turnledger.errors import RequestFailed

SentEvent: TypeAlias = tuple[bytes, bytes, bytes]
"""The id of an event, its kind and its data. A block that has no more than an id is one, too."""

_ONE_EVENT = re.compile(rb"id: ([^\r\n]*)\nevent: ([^\r\n]*)\ndata: ([^\r\n]*)\n\n")
"""As the server writes nearly all of them, and most come one by one."""


class EventParser:
    """Takes any pieces of a stream. Each byte is looked at a bounded number of times: a long event in many
    pieces is joined once."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._last = b""
        """The last byte of the pieces."""
        self._length = 0
        """Of the pieces."""
        self._is_in_line_end = False

    def feed(self, chunk: bytes) -> list[SentEvent]:
        """The events that this piece completes. Raises RequestFailed for one without end."""
        if not self._pieces and not self._is_in_line_end and (match := _ONE_EVENT.fullmatch(chunk)):
            id, kind, data = match.groups()
            return [(id, kind, data)]
        if b"\r" in chunk or self._is_in_line_end:
            chunk = self._with_plain_line_ends(chunk)
        pieces = self._pieces
        if pieces or chunk[-2:] != b"\n\n":
            if b"\n\n" not in (self._last + chunk if pieces else chunk):
                if chunk:
                    self._hold(chunk)
                return []
            whole = b"".join((*pieces, chunk))
            pieces.clear()
            self._length = 0
            chunk, _, rest = whole.rpartition(b"\n\n")
            if rest:
                self._hold(rest)
        return [event for block in chunk.split(b"\n\n") if (event := _event_of(block)) is not None]

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._last = piece[-1:]
        self._length += len(piece)
        if self._length > MOST_BYTES:
            raise RequestFailed("The server sends an event without end. Check the address.")

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        if self._is_in_line_end and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # of a line end that came in two pieces
        self._is_in_line_end = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event_of(block: bytes) -> SentEvent | None:
    fields: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name:  # else it is a comment
            fields.setdefault(name, []).append(value.removeprefix(b" "))
    if not fields.keys() & {b"id", b"event", b"data"}:
        return None
    data = b"\n".join(fields.get(b"data", ()))
    return fields.get(b"id", [b""])[-1], fields.get(b"event", [b""])[-1], data
