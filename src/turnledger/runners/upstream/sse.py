"""The payloads of a streamed answer: the `data` of its events."""

from __future__ import annotations

from turnledger.errors import MalformedAnswer
from turnledger.model.text.sse import EventSplitter, fields_of

EVENT_BYTES = 16 * 1024 * 1024
"""What one event may take: an answer that never ends a line must not fill the memory."""


class EventStream(EventSplitter):
    """Gives the `data` of each event; other fields, and events of empty data, give nothing."""

    __slots__ = ()

    def __init__(self, limit: int = EVENT_BYTES) -> None:
        super().__init__(limit, _too_long)

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the payloads they complete. Raises MalformedAnswer if an event grows
        too long."""
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
        """Return the payload of a last event that lacks its blank line, if there is one."""
        payload = _payload(self.rest())
        return [payload] if payload else []


def _payload(event: bytes) -> bytes:
    """The data of one event, as one line: in JSON an end of line is a blank, and the payload is passed on as
    one line."""
    return b" ".join(fields_of(event).get(b"data", ()))


def _too_long(limit: int) -> MalformedAnswer:
    return MalformedAnswer(f"The model sent an event of more than {limit} bytes.")
