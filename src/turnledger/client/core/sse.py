"""Parses the events of a turn or of the feed."""

from __future__ import annotations

import re
from typing import TypeAlias

from turnledger.client.core.steps import MAX_BYTES
from turnledger.errors import RequestFailed
from turnledger.model.text.sse import EventSplitter, fields_of

SentEvent: TypeAlias = tuple[bytes, bytes, bytes]
"""The id of an event, its kind and its data. A block with only an id is an event, too."""

_ONE_EVENT = re.compile(rb"id: ([^\r\n]*)\nevent: ([^\r\n]*)\ndata: ([^\r\n]*)\n\n")
"""Nearly all events look like this, and most arrive one by one."""


class EventParser(EventSplitter):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(MAX_BYTES, _too_long_error)

    def feed(self, chunk: bytes) -> list[SentEvent]:
        """Return the events that this piece completes. Raises RequestFailed for an endless event."""
        if not self._pieces and not self._is_in_line_end and (match := _ONE_EVENT.fullmatch(chunk)):
            id, kind, data = match.groups()
            return [(id, kind, data)]
        return [event for block in self.split(chunk) if block and (event := _event_of(block)) is not None]


def _event_of(block: bytes) -> SentEvent | None:
    fields = fields_of(block)
    if not fields.keys() & {b"id", b"event", b"data"}:
        return None
    data = b"\n".join(fields.get(b"data", ()))
    return fields.get(b"id", [b""])[-1], fields.get(b"event", [b""])[-1], data


def _too_long_error(_: int) -> RequestFailed:
    return RequestFailed("The server sent an endless event. Check base_url.")
