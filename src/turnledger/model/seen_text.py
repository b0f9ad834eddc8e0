"""What a person sees of a turn as text: what was asked and what was answered, and nothing that is hidden."""

from __future__ import annotations

from collections.abc import Collection

from turnledger.model.turn import Turn

_SPOKEN = ("user", "assistant")


def seen_texts(turn: Turn, hidden: Collection[int]) -> list[str]:
    """The texts of the messages of user and assistant, in order, without the items at the places that are
    hidden from the user. Tools, reasoning and instructions have no part in them."""
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.type == "message" and item.role in _SPOKEN and place not in hidden and item.text
    ]
