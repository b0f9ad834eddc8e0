"""Events that a running turn sends to its readers, numbered from 1 without gaps."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from turnledger.model import codec
from turnledger.model.turn import AttemptState, Failure


class TurnStarted(codec.Document, frozen=True, tag="turn.started"):
    """The first event: the turn holds its lane."""

    number: int


class TextDelta(codec.Document, frozen=True, tag="text.delta"):
    """Text was emitted. Its item follows when it is finished: before the next item, or at the end."""

    number: int
    text: str


class ItemDone(codec.Document, frozen=True, tag="item.done"):
    """An item of the answer is finished. Sent once per item, also for those of a resumed attempt."""

    number: int
    item: msgspec.Raw


class TurnFinished(codec.Document, frozen=True, tag="turn.finished"):
    """The last event. It is sent only after the store has decided."""

    number: int
    state: AttemptState
    failure: Failure | None = None


Event: TypeAlias = TurnStarted | TextDelta | ItemDone | TurnFinished


def decode(raw: bytes) -> Event:
    event: Event = codec.decode_one_of(Event, raw)
    return event
