"""The history as chat JSON: what chat models are sent, made once for each turn and kept as bytes.

A turn goes on from the bytes of the turn before it, so that a long history costs a copy and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from turnledger.engine.history.history import History
from turnledger.model.item import Item
from turnledger.model.messages.messages import messages_of
from turnledger.model.messages.pairing import left_open
from turnledger.model.turn import Turn

LOOK_BACK = 4
"""Turns behind the kept ones up to which it is worth while to go on from there: a retry, an edit, a turn that
somebody else ran."""

LONG = 500
"""Turns from which on they are decoded beside the event loop."""

_encode = msgspec.json.Encoder().encode


def said_in(items: Iterable[Item]) -> bytes:
    """The items as chat messages in JSON, with commas between them and no brackets around."""
    items = tuple(items)
    plain: list[dict[str, str | None]] = []
    for item in items:
        text = item.only_text
        if text is None:
            return _encode(messages_of(items))[1:-1]
        plain.append({"role": item.role, "content": text})
    return _encode(plain)[1:-1]  # what most turns are, without a look at everything they might be


def joined(*parts: bytes) -> bytes:
    """Such parts as one; those that say nothing leave no comma."""
    return b",".join([part for part in parts if part])


def goes_on(turn: Turn) -> bool:
    """Whether a turn begins with what the model said or called, as a settled one without input does: chat
    messages put that into one with what it said before."""
    first = turn.items[0] if turn.items else None
    if first is None or first.type == "function_call_output":
        return False
    return first.type != "message" or first.role == "assistant"


def said_from(history: History, start: int, said: bytes) -> tuple[bytes, Turn | None, Sequence[Turn]]:
    """What was said up to the last turn that left no call open, which turn that is, and those behind it; with
    what was said up to `start`."""
    # One after the other: a long history that is decoded all at once takes many times its bytes.
    turns = (history[at] for at in range(start, len(history)))
    parts = [said]
    waiting: list[Turn] = []
    last: Turn | None = None
    turn = next(turns, None)
    while turn is not None:
        following = next(turns, None)
        waiting.append(turn)
        if not left_open(turn.items) and not (following is not None and goes_on(following)):
            parts.append(said_in(item for each in waiting for item in each.items))
            last, waiting = turn, []
        turn = following
    return joined(*parts), last, waiting
