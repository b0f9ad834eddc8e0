"""Titles that nobody gave: the first words of what a person asked first.

The preview of a chat: how the last text begins that a person sees of it.

What a person sees of a turn as text: what was asked and what was answered, and nothing that is hidden.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from turnledger.model.item import Item
from turnledger.model.text.plain import one_line
from turnledger.model.turn import Turn

TITLE_LENGTH = 60
SHORTEST = 20
"""A title is cut between words, unless that would leave less than this."""
CUT = "…"


def title_of(text: str) -> str | None:
    """The first words of a text as a title of one line; None if it has none."""
    line = one_line(text, TITLE_LENGTH + 1)
    if len(line) <= TITLE_LENGTH:
        return line or None
    words = line[: TITLE_LENGTH - len(CUT) + 1]
    end = words.rfind(" ")
    return words[: end if end >= SHORTEST else TITLE_LENGTH - len(CUT)].rstrip() + CUT


def first_words(input: Iterable[Item], hidden: Collection[int] = ()) -> str | None:
    """The title that the input of a turn gives: the first words of its first text by a person, without the
    items at the hidden places."""
    for place, item in enumerate(input):
        if item.is_user_message and place not in hidden and (title := title_of(item.text)):
            return title
    return None


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


_SPOKEN = ("user", "assistant")


def seen_texts(turn: Turn, hidden: Collection[int]) -> list[str]:
    """The texts of the messages of user and assistant, in order, without the items at the places that are
    hidden from the user. Tools, reasoning and instructions have no part in them."""
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.type == "message" and item.role in _SPOKEN and place not in hidden and item.text
    ]
