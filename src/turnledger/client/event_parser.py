"""Events as a server sends them (`text/event-stream`), taken from its bytes as they come."""

from __future__ import annotations

from typing import NamedTuple


class SentEvent(NamedTuple):
    """One event; a block that has no more than an id is one, too, without data."""

    id: bytes
    kind: bytes
    data: bytes


class EventParser:
    """Takes any pieces of a stream. Each byte is looked at a bounded number of times: a long event in many
    pieces is joined once."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._last = b""
        """The last byte of the pieces."""
        self._is_in_line_end = False

    def feed(self, chunk: bytes) -> list[SentEvent]:
        """The events that this piece completes."""
        if b"\r" in chunk or self._is_in_line_end:
            chunk = self._with_plain_line_ends(chunk)
        if not chunk:
            return []
        if b"\n\n" not in (self._last + chunk if self._pieces else chunk):
            self._pieces.append(chunk)
            self._last = chunk[-1:]
            return []
        if self._pieces:
            chunk = b"".join((*self._pieces, chunk))
            self._pieces.clear()
        *blocks, rest = chunk.split(b"\n\n")
        if rest:
            self._pieces.append(rest)
            self._last = rest[-1:]
        return [event for block in blocks if (event := _event_of(block)) is not None]

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        if self._is_in_line_end and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # of a line end that came in two pieces
        self._is_in_line_end = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event_of(block: bytes) -> SentEvent | None:
    lines = block.split(b"\n")
    if len(lines) == 3:  # as the server writes nearly all of them
        id, kind, data = lines
        if id[:4] == b"id: " and kind[:7] == b"event: " and data[:6] == b"data: ":
            return SentEvent(id[4:], kind[7:], data[6:])
    return _any_event_of(lines)


def _any_event_of(lines: list[bytes]) -> SentEvent | None:
    fields: dict[bytes, list[bytes]] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        if name:  # else it is a comment
            fields.setdefault(name, []).append(value.removeprefix(b" "))
    if not fields.keys() & {b"id", b"event", b"data"}:
        return None
    data = b"\n".join(fields.get(b"data", ()))
    return SentEvent(fields.get(b"id", [b""])[-1], fields.get(b"event", [b""])[-1], data)
