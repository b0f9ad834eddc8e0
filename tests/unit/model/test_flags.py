"""Hiding an item hides its call, result or reasoning too, and leaves a well-formed history."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import assistant, call, histories, reasoning, repeatable, result, some_id, user
from turnledger.model.flags import (
    SHOWN,
    Flags,
    hidden_from_model,
    hidden_from_user,
    hidden_in_parts,
    with_counterparts,
    without_hidden,
)
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, open_calls

ONE, TWO = some_id(TurnId, 1), some_id(TurnId, 2)


def closed(items: list[Item]) -> list[Item]:
    """The history with a result for each open call."""
    return [*items, *(result(item.call_id or "", item.type) for item in open_calls(items))]


def test_flags_show_an_item_to_model_and_user_by_default() -> None:
    assert (SHOWN.to_model, SHOWN.to_user) == (True, True)


def test_hidden_from_model_and_hidden_from_user_list_the_flagged_items() -> None:
    flags = {ONE: {0: Flags(False, True), 1: Flags(True, False), 2: Flags(False, False)}, TWO: {3: SHOWN}}
    assert hidden_from_model(flags) == {ONE: [0, 2]}
    assert hidden_from_user(flags) == {ONE: [1, 2]}


A_TURN = [user(), reasoning(), call("a"), call("b"), result("a"), result("b"), reasoning(), assistant()]


@pytest.mark.parametrize(
    ("hidden", "gone"),
    [
        ([], []),
        ([0], [0]),
        ([2], [2, 4]),
        ([4], [2, 4]),
        ([2, 5], [1, 2, 3, 4, 5]),
        ([7], [6, 7]),
        ([6], [6]),
        ([1], [1]),
    ],
    ids=["nothing", "message", "call", "result", "all calls", "what was thought of", "a thought", "plan"],
)
def test_hidden_item_hides_its_call_result_or_reasoning(hidden: list[int], gone: list[int]) -> None:
    assert sorted(with_counterparts(A_TURN, hidden)) == gone


def test_hidden_call_of_a_repeated_id_hides_only_its_own_result() -> None:
    items = [call("a"), result("a"), call("a"), result("a")]
    assert with_counterparts(items, [3]) == {2, 3}
    assert with_counterparts(items, [0]) == {0, 1}


def test_hidden_item_hides_all_reasoning_before_it() -> None:
    assert with_counterparts([reasoning("1"), reasoning("2"), assistant()], [2]) == {0, 1, 2}


def test_hidden_call_hides_its_result_in_a_later_turn() -> None:
    parts = [(user(), reasoning(), call("a")), (result("a"), assistant())]
    assert without_hidden(parts, [(2,), ()]) == [(user(),), (assistant(),)]
    assert without_hidden(parts, [(), (0,)]) == [(user(),), (assistant(),)]
    assert hidden_in_parts(parts, [(), (0,)]) == [{1, 2}, {0}]


@repeatable
@given(histories, st.sets(st.integers(0, 16)), st.lists(st.integers(0, 16), max_size=3))
def test_items_left_after_hiding_are_well_formed_and_complete(
    history: list[Item], hidden: set[int], cuts: list[int]
) -> None:
    items = closed(history)
    edges = [0, *sorted(min(cut, len(items)) for cut in cuts), len(items)]
    stretches = list(pairwise(edges))
    parts = [tuple(items[start:end]) for start, end in stretches]
    expected = [{at - start for at in hidden if start <= at < end} for start, end in stretches]
    left = [item for part in without_hidden(parts, expected) for item in part]
    assert open_calls(left) == ()
    gone = with_counterparts(items, {at for at in hidden if at < len(items)})
    assert left == [item for at, item in enumerate(items) if at not in gone]
    assert {at for at in hidden if at < len(items)} <= gone
    extra = [items[at] for at in gone - hidden]
    assert all(item.is_call or item.is_result or item.is_reasoning for item in extra)
