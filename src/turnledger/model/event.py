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


class ReasoningDelta(codec.Document, frozen=True, tag="reasoning.delta"):
    """Reasoning was emitted. Its item is placed before the text that it led to."""

    number: int
    text: str


class RefusalDelta(codec.Document, frozen=True, tag="refusal.delta"):
    """A part of a refusal was emitted: text in which the model declines to answer."""

    number: int
    text: str


class ItemAdded(codec.Document, frozen=True, tag="item.added"):
    """A call was opened: `item` has its type, call_id and name, and no arguments yet."""

    number: int
    item: msgspec.Raw


class ArgumentsDelta(codec.Document, frozen=True, tag="arguments.delta"):
    """A part of the arguments of an open call was emitted. Several calls may be open at once."""

    number: int
    call_id: str
    text: str


class ItemDone(codec.Document, frozen=True, tag="item.done"):
    """An item of the answer is finished. Sent once per item, also for those of a resumed attempt."""

    number: int
    item: msgspec.Raw


class TurnResumed(codec.Document, frozen=True, tag="turn.resumed"):
    """The turn continues in another process. All deltas and open calls since the last finished item are
    void."""

    number: int


class TurnFinished(codec.Document, frozen=True, tag="turn.finished"):
    """The last event. It is sent only after the store has decided."""

    number: int
    state: AttemptState
    failure: Failure | None = None


Event: TypeAlias = (
    TurnStarted
    | TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ItemAdded
    | ArgumentsDelta
    | ItemDone
    | TurnResumed
    | TurnFinished
)


def decode(raw: bytes) -> Event:
    event: Event = codec.decode_one_of(Event, raw)
    return event
