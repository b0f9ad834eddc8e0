"""Positions in lists survive their text form; invalid texts are refused."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable, some_id
from turnledger.errors import InvalidInput
from turnledger.model.catalogue import ListPosition
from turnledger.model.ids import ConversationId

places = st.builds(
    ListPosition,
    st.integers(0, 2**53),
    st.integers(0, 1_000).map(lambda number: some_id(ConversationId, number)),
)


@repeatable
@given(places)
def test_list_cursor_leads_back_to_its_position(place: ListPosition) -> None:
    assert ListPosition.of(place.cursor) == place
    assert place.cursor.isascii()
    assert len(place.cursor) == 36


@repeatable
@given(places, places)
def test_list_positions_sort_by_time_and_then_by_id(one: ListPosition, other: ListPosition) -> None:
    assert (one < other) == ((one.at, one.id) < (other.at, other.id))


@repeatable
@given(st.text() | st.binary(max_size=40).map(lambda raw: urlsafe_b64encode(raw).decode()))
@example("")
@example("é" * 36)
@example("A" * 36)
@example(ListPosition(1, some_id(ConversationId, 1)).cursor + "=")
@example(some_id(ConversationId, 1))
def test_list_cursor_with_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid cursor"):
        ListPosition.of(text)


def test_list_cursor_with_one_changed_letter_is_refused() -> None:
    cursor = ListPosition(1_700_000_000_000, some_id(ConversationId, 1)).cursor
    for place, letter in enumerate(cursor):
        with pytest.raises(InvalidInput):
            ListPosition.of(cursor[:place] + ("B" if letter == "A" else "A") + cursor[place + 1 :])
