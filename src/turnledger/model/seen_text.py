"""What a person sees of a turn as text: what was asked and what was answered, and nothing that is hidden."""

from __future__ import annotations

from collections.abc import Mapping

from turnledger.model.flags import SHOWN, Flags
from turnledger.model.turn import Turn

_SPOKEN = ("user", "assistant")


def seen_texts(turn: Turn, flags: Mapping[int, Flags]) -> list[str]:
    """The texts of the messages of user and assistant that are shown to the user, in order. Tools,
    reasoning and instructions have no part in them."""
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.role in _SPOKEN and item.type == "message" and flags.get(place, SHOWN).to_user and item.text
    ]
