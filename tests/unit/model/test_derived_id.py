"""Ids made of something else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnledger.model.derived_id import derived, time_of
from turnledger.model.ids import BranchId, ConversationId, TurnId

TIMES = st.integers(0, 2**48 - 1)


@given(TIMES, st.text(), st.text())
def test_an_id_is_the_same_for_the_same_and_keeps_its_time(at: int, one: str, two: str) -> None:
    made = derived(TurnId, at, one, two)
    assert TurnId(made) == made == derived(TurnId, at, one, two)
    assert time_of(made) == at


def test_others_are_others() -> None:
    assert derived(TurnId, 1, "a", "b") != derived(TurnId, 1, "ab")
    assert derived(TurnId, 1, "a").raw != derived(BranchId, 1, "a").raw
    assert derived(ConversationId, 1, "a") != derived(ConversationId, 2, "a")
