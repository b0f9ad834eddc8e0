"""The history as chat JSON: what chat models are sent, made once for each turn and kept as bytes.

A turn goes on from the bytes of the turn before it, so that a long history costs a copy and no more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
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


def _said_from(history: History, start: int, said: bytes) -> tuple[bytes, Turn | None, Sequence[Turn]]:
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


class ChatHistories:
    """Beginnings of histories as chat JSON, by their last turn; those used last, bounded by their bytes.

    Each ends with a turn that left no call open: where one did, its results may belong between messages of
    that turn. None is followed by a turn that goes on with its last message.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    def through(self, history: History) -> tuple[bytes, Sequence[Turn]]:
        """What was said in a history up to its last turn that left no call open, and the turns behind it."""
        start, said = self._nearest(history)
        return self._kept_through(history, start, _said_from(history, start, said))

    async def read_through(self, history: History) -> tuple[bytes, Sequence[Turn]]:
        """The same; what takes long is done beside the event loop."""
        start, said = self._nearest(history)
        if len(history) - start < LONG:
            return self.through(history)
        return self._kept_through(history, start, await asyncio.to_thread(_said_from, history, start, said))

    def _kept_through(
        self, history: History, start: int, found: tuple[bytes, Turn | None, Sequence[Turn]]
    ) -> tuple[bytes, Sequence[Turn]]:
        said, last, waiting = found
        if last is not None:
            self._keep(last.id.raw, said, history.raw_id(start - 1) if start else None)
        return said, waiting

    def follow(self, turn: Turn) -> None:
        """A turn was committed: keep what it said, if what was said before it is kept."""
        said = self._kept.get(turn.parent.raw) if turn.parent is not None else None
        if said is not None and turn.parent is not None and not left_open(turn.items) and not goes_on(turn):
            self._keep(turn.id.raw, joined(said, said_in(turn.items)), turn.parent.raw)

    def _nearest(self, history: History) -> tuple[int, bytes]:
        """How many turns are kept already, and as what."""
        length = len(history)
        for end in range(length, max(length - LOOK_BACK, 0), -1):
            said = self._kept.get(history.raw_id(end - 1))
            if said is not None and not (end < length and goes_on(history[end])):
                return end, said
        return 0, b""

    def _keep(self, turn: bytes, said: bytes, before: bytes | None) -> None:
        """Keep it in the place of the one that it goes on from."""
        for id in (before, turn):
            if id is not None and id in self._kept:
                self._bytes -= len(self._kept.pop(id))
        self._kept[turn] = said
        self._bytes += len(said)
        while self._bytes > self._max_bytes and self._kept:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= len(dropped)
