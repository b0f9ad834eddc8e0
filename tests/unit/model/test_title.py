"""Titles that nobody gave: first words, whole ones where there are any, on one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import assistant, user
from turnledger.model.item import Item
from turnledger.model.title import TITLE_LENGTH, first_words, title_of


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Where is my order?", "Where is my order?"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 20, "word word word word word word word word word word word word…"[:60]),
        ("Please\nhelp", "Please help"),
        ("\x1b]0;owned\x07", "]0;owned"),
        (" \n", None),
        ("", None),
    ],
)
def test_the_first_words_are_the_title(text: str, title: str | None) -> None:
    assert title_of(text) == title


def test_it_is_cut_between_words_and_says_so() -> None:
    title = title_of("one two three four five six seven eight nine ten eleven twelve thirteen")
    assert title == "one two three four five six seven eight nine ten eleven…"


@given(st.text())
def test_it_is_never_too_long_and_never_empty(text: str) -> None:
    title = title_of(text)
    assert title is None or 0 < len(title) <= TITLE_LENGTH


def test_the_first_text_of_a_person_gives_it() -> None:
    picture = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]})
    assert first_words((assistant("No."), picture, user("Yes"), user("Later"))) == "Yes"
    assert first_words((assistant("No."), picture)) is None
