"""The preview: the last text that a person sees of a turn, and nothing that they do not see."""

from __future__ import annotations

from tests.unit.model.shapes import assistant, call, reasoning, result, turn, user
from turnledger.model.item import Item, message
from turnledger.model.preview import PREVIEW_LENGTH, preview_of
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
