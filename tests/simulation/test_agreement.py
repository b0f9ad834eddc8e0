"""Agreement: what is told has to be there, in order and once; what is optional may be left out."""

from __future__ import annotations

import pytest

from turnledger.testing.simulation.oracle.agreement import agrees, begins_with

SAME = [("a", False), ("b", True), ("c", False)]


@pytest.mark.parametrize("told", ["abc", "ac"])
def test_what_is_optional_may_be_left_out(told: str) -> None:
    assert agrees(told, SAME)


@pytest.mark.parametrize("told", ["", "ab", "bc", "abbc", "acc", "cab", "abcd"])
def test_nothing_else_may_be_lost_doubled_or_moved(told: str) -> None:
    assert not agrees(told, SAME)


def test_an_optional_message_does_not_stand_for_a_later_one() -> None:
    assert agrees("aq", [("a", False), ("q", True), ("q", False)])
    assert not agrees("aq", [("a", False), ("q", False), ("q", False)])


def test_what_comes_before_may_be_anything_where_that_is_said() -> None:
    assert agrees("c", SAME, may_begin_late=True)
    assert not agrees("a", SAME, may_begin_late=True)


def test_a_beginning_ends_anywhere() -> None:
    assert begins_with("a", SAME)
    assert begins_with("ac", SAME)
    assert not begins_with("c", SAME)
