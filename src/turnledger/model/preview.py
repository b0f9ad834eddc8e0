"""The preview of a chat: how the last text begins that a person sees of it."""

from __future__ import annotations

from collections.abc import Collection

from turnledger.model.one_line import one_line
from turnledger.model.turn import Turn

PREVIEW_LENGTH = 160
_SEEN = ("assistant", "user")


def preview_of(turn: Turn, hidden: Collection[int] = ()) -> str:
    """The beginning of the last text in a turn that a person sees, without the items at the hidden places;
    empty if it shows none: a turn may be all calls and results."""
    items = turn.items
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if item.role in _SEEN and place not in hidden and (line := one_line(item.text, PREVIEW_LENGTH)):
            return line
    return ""
