"""Positions in lists and in the feed of changes: their text leads back to them, and no other text does."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable, some_id
from turnledger.errors import InvalidInput
from turnledger.model.catalogue import ListPosition
from turnledger.model.change import Position, mark_of
from turnledger.model.ids import ConversationId

places = st.builds(
    ListPosition,
    st.integers(0, 2**53),
    st.integers(0, 1_000).map(lambda number: some_id(ConversationId, number)),
)


@repeatable
@given(places)
def test_a_cursor_leads_back_to_its_place(place: ListPosition) -> None:
    assert ListPosition.of(place.cursor) == place
    assert place.cursor.isascii()
    assert len(place.cursor) == 36


@repeatable
@given(places, places)
def test_places_are_in_the_order_of_time_and_then_of_id(one: ListPosition, other: ListPosition) -> None:
    assert (one < other) == ((one.at, one.id) < (other.at, other.id))


@repeatable
@given(st.text() | st.binary(max_size=40).map(lambda raw: urlsafe_b64encode(raw).decode()))
@example("")
@example("é" * 36)
@example("A" * 36)
@example(ListPosition(1, some_id(ConversationId, 1)).cursor + "=")
@example(some_id(ConversationId, 1))
def test_nothing_else_is_a_cursor(text: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid cursor"):
        ListPosition.of(text)


def test_a_cursor_that_was_changed_is_none() -> None:
    cursor = ListPosition(1_700_000_000_000, some_id(ConversationId, 1)).cursor
    for place, letter in enumerate(cursor):
        with pytest.raises(InvalidInput):
            ListPosition.of(cursor[:place] + ("B" if letter == "A" else "A") + cursor[place + 1 :])


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
