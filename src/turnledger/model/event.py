"""Events: what a running turn tells its readers, numbered from 1 without gaps."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from turnledger.model import codec
from turnledger.model.turn import AttemptState, Failure


class TurnStarted(codec.Document, frozen=True, tag="turn.started"):
    """The first event: the turn holds its lane."""

    number: int


class TextDelta(codec.Document, frozen=True, tag="text.delta"):
    """Text was emitted. The item made of it is told when it is finished, by the next item or by the end."""

    number: int
    text: str


class ItemDone(codec.Document, frozen=True, tag="item.done"):
    """An item of the answer is finished: told once for each, those of an attempt that is resumed included."""

    number: int
    item: msgspec.Raw


class TurnFinished(codec.Document, frozen=True, tag="turn.finished"):
    """The last event. It is sent after the store has decided, never before."""

    number: int
    state: AttemptState
    failure: Failure | None = None


Event: TypeAlias = TurnStarted | TextDelta | ItemDone | TurnFinished


def decode(raw: bytes) -> Event:
    event: Event = codec.decode_one_of(Event, raw)
    return event
