"""Positions: their text leads back to them, and nothing else does."""

import pytest

from turnledger.model.change import Position, mark_of


@pytest.mark.parametrize("position", [Position(), Position(1, 2), Position(2**60 - 1, 2**32 - 1)])
def test_the_text_of_a_position_leads_back_to_it(position: Position) -> None:
    assert Position.of(str(position)) == position


@pytest.mark.parametrize(
    "text",
    ["", "1", "-", "1-2", "g-00000000", "1-000000000", "-1-00000000", "1-0000000 ", "A-00000000", "1" * 99],
)
def test_no_other_text_is_a_position(text: str) -> None:
    assert Position.of(text) is None


def test_what_differs_in_anything_has_another_mark() -> None:
    marks = {mark_of(1, b"a", None), mark_of(2, b"a", None), mark_of(1, b"b", None), mark_of(1, b"a", b"t")}
    assert len(marks) == 4
