"""Events of a turn as bytes of `text/event-stream`."""

from __future__ import annotations

from collections.abc import Iterable

from turnledger.model import codec
from turnledger.model.event import Event
from turnledger.server.errors import error_body

HEARTBEAT_EVERY = 10.0
"""Seconds. A stream that was silent for this long sends a comment, after twice the time at most."""
COMMENT = b": \n\n"
"""A comment, which readers of events skip."""


def event_bytes(event: Event) -> bytes:
    """Encode an event, with its number as the id to resume from."""
    kind = str(event.__struct_config__.tag).encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, kind, codec.encode(event))


def events_bytes(events: Iterable[Event]) -> bytes:
    return b"".join(map(event_bytes, events))


def error_event(problem: BaseException) -> bytes:
    return b"event: error\ndata: %s\n\n" % error_body(problem)
