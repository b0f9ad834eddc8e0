"""Attempts move by one table of legal moves, and by nothing else."""

from itertools import product

import pytest
from msgspec.structs import asdict, replace

from tests.unit.model.shapes import some_id, user
from turnledger.model import codec
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.turn import MOVES, Attempt, AttemptBody, AttemptState, Failure, Instructions

FAILURE = Failure("boom", "it broke")


def attempt(state: AttemptState = AttemptState.RUNNING) -> Attempt:
    return Attempt(
        id=some_id(TurnId, 1),
        owner="ann",
        conversation=some_id(ConversationId, 1),
        branch=some_id(BranchId, 1),
        lease=some_id(LeaseId, 1),
        fence=3,
        state=state,
        base=None,
        input=(user(),),
        partial="so f",
        created_at=10,
    )


def test_every_state_has_its_moves() -> None:
    assert set(MOVES) == set(AttemptState)


def test_the_legal_moves_are_these() -> None:
    drawn = {f"{before} → {after}" for before in MOVES for after in MOVES[before]}
    assert drawn == {
        "running → completed",
        "running → kept",
        "running → failed",
        "running → discarded",
        "failed → settled",
        "failed → resumed",
        "discarded → settled",
    }


@pytest.mark.parametrize(("before", "after"), [*product(AttemptState, AttemptState)])
def test_a_move_is_legal_or_raises(before: AttemptState, after: AttemptState) -> None:
    given = attempt(before)
    if after in MOVES[before]:
        assert given.moved(after) == replace(given, state=after)
    else:
        with pytest.raises(ValueError, match=f"from {before} to {after}"):
            given.moved(after)


def test_every_state_can_become_one_that_no_move_leaves() -> None:
    for state in AttemptState:
        reached = {state}
        for _ in AttemptState:
            reached |= {after for before in reached for after in MOVES[before]}
        assert any(not MOVES[each] for each in reached)


def test_nothing_ever_runs_again() -> None:
    assert all(AttemptState.RUNNING not in after for after in MOVES.values())


def test_committed_means_that_there_is_a_turn() -> None:
    assert {state for state in AttemptState if state.is_committed} == {
        AttemptState.COMPLETED,
        AttemptState.KEPT,
        AttemptState.SETTLED,
    }
    assert not any(MOVES[state] for state in AttemptState if state.is_committed)


def test_a_move_changes_state_failure_and_end_only() -> None:
    moved = attempt().moved(AttemptState.FAILED, failure=FAILURE, at=20)
    changed = {name for name, value in asdict(moved).items() if value != asdict(attempt())[name]}
    assert changed == {"state", "failure", "ended_at"}
    assert (moved.failure, moved.ended_at) == (FAILURE, 20)


def test_a_later_move_keeps_the_failure_and_the_end() -> None:
    settled = attempt().moved(AttemptState.FAILED, failure=FAILURE, at=20).moved(AttemptState.SETTLED)
    assert (settled.failure, settled.ended_at) == (FAILURE, 20)


def test_an_attempt_can_end_at_time_zero() -> None:
    assert attempt().moved(AttemptState.FAILED, at=0).ended_at == 0


def test_the_body_holds_input_and_partial_text() -> None:
    body = codec.decode(AttemptBody, attempt().body)
    assert codec.items(body.input) == (user(),)
    assert body.partial == "so f"
    assert body.given is None
    assert b"instruct" not in attempt().body


@pytest.mark.parametrize("items", [(), (message("system", "Be brief."),)])
@pytest.mark.parametrize("is_lasting", [True, False])
def test_the_body_holds_the_instructions_it_was_begun_with(items: tuple[Item, ...], is_lasting: bool) -> None:
    given = Instructions(items, is_lasting)
    body = codec.decode(AttemptBody, replace(attempt(), instructions=given).body)
    assert body.given == given
    assert codec.items(body.input) == (user(),)
