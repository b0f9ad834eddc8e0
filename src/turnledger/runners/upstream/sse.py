"""Server-sent events, as far as chat models use them: from bytes, cut anywhere, to the payloads of events."""

from __future__ import annotations

from turnledger.errors import MalformedAnswer

EVENT_BYTES = 16 * 1024 * 1024
"""What one event may take: an answer that never ends a line must not fill the memory."""

_BOM = b"\xef\xbb\xbf"


class EventStream:
    """Takes the bytes of a stream as they come; gives the `data` of each event that is whole.

    Lines may end in LF, CRLF or CR. Comments, other fields and events of empty data give nothing.
    """

    __slots__ = ("_held", "_limit", "_pieces", "_size")

    def __init__(self, limit: int = EVENT_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._held = b""  # a CR whose LF may be still to come

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the payloads they complete. Raises MalformedAnswer if an event grows
        too long."""
        if self._held or b"\r" in piece:
            piece = self._with_plain_ends(piece)
        # Joining at every piece would cost a long line the square of its length.
        if b"\n" not in piece:
            return self._keep(piece)
        if self._pieces:
            self._pieces.append(piece)
            piece = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
        events = piece.split(b"\n\n")
        rest = events.pop()
        payloads = []
        for event in events:
            if event[:6] == b"data: " and b"\n" not in event:
                payload = event[6:]
            else:
                payload = _payload(event)
            if payload:
                payloads.append(payload)
        if rest:
            self._keep(rest)
        return payloads

    def end(self) -> list[bytes]:
        """Return the payload of a last event that lacks its blank line, if there is one."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        payload = _payload(rest)
        return [payload] if payload else []

    def _keep(self, piece: bytes) -> list[bytes]:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            raise MalformedAnswer(f"The model sent an event of more than {self._limit} bytes.")
        return []

    def _with_plain_ends(self, piece: bytes) -> bytes:
        piece = self._held + piece
        self._held = b""
        if piece[-1:] == b"\r":
            piece, self._held = piece[:-1], b"\r"
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _payload(event: bytes) -> bytes:
    """The data of one event in any form, as one line: to JSON an end of line is but a blank, and who passes
    the payload on writes it as one line."""
    found = []
    for line in event.removeprefix(_BOM).split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            found.append(value[1:] if value[:1] == b" " else value)
    return b" ".join(found)
