"""The preview: the last text that a person sees of a turn, and nothing that they do not see.

Titles that nobody gave: first words, whole ones where there are any, on one line.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import assistant, call, reasoning, result, turn, user
from turnledger.model.item import Item, message
from turnledger.model.text.plain import PREVIEW_LENGTH, TITLE_LENGTH, first_words, preview_of, title_of
from turnledger.model.turn import Turn


def turn_of(input: tuple[Item, ...], output: tuple[Item, ...]) -> Turn:
    return turn(input=input, output=output)


def test_it_is_how_the_last_answer_begins() -> None:
    said = turn_of((user("q"),), (assistant("I look."), call("c"), result("c"), assistant("It is\nthere.")))
    assert preview_of(said) == "It is there."


def test_without_an_answer_it_is_the_question() -> None:
    assert preview_of(turn_of((user("q"),), (reasoning(), call("c")))) == "q"
    assert preview_of(turn_of((user("q"),), (call("c"), result("c"), message("developer", "note")))) == "q"


def test_tools_and_thoughts_are_never_in_it() -> None:
    assert preview_of(turn_of((result("c"),), (reasoning(), call("d")))) == ""


def test_what_is_hidden_is_not_in_it() -> None:
    said = turn_of((user("q"),), (assistant("a"), assistant("b")))
    assert [preview_of(said, hidden) for hidden in ({2}, {1, 2}, {0, 1, 2})] == ["a", "q", ""]


def test_it_is_short() -> None:
    assert preview_of(turn_of((user("q"),), (assistant("x" * 1_000),))) == "x" * PREVIEW_LENGTH


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
