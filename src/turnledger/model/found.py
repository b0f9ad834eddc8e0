"""What a search finds: a turn, or the title of a conversation, and its place among all that can be found."""

from __future__ import annotations

from msgspec import Struct

from turnledger.model.ids import ConversationId, TurnId

TITLES = 1 << 61
"""Places above this one are those of titles: they come before all turns."""


class Found(Struct, frozen=True):
    """What is found comes in the order of falling places: the last committed turn first, and before all turns
    the titles, that of the last made conversation first. A place is never given to another while it is
    taken."""

    place: int
    conversation: ConversationId
    turn: TurnId | None = None
    """None where the title was found."""
