"""Titles that nobody gave: the first words of what a person asked first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from turnledger.model.item import Item
from turnledger.model.one_line import one_line

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
