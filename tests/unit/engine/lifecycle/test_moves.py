"""Moving: what is done at once when the lane is free, and what is known of it when its answer was lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.attempt.test_divergence import PLAIN, stored
from tests.unit.engine.stage import BRANCH, CONVERSATION, conversation, drive, ticket
from tests.unit.model.shapes import some_id
from turnledger.engine.lifecycle.moves import (
    KNOWN_SWITCHES,
    ForkRequest,
    Moved,
    SiblingsRequest,
    Switch,
    Undo,
    check_move,
    fork,
    move,
    moved_before,
    siblings,
)
from turnledger.errors import BranchNotFound, InvalidInput, Superseded, TurnNotFound
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import TurnKind

NEW, OTHER = some_id(BranchId, 9), some_id(BranchId, 8)
FORKED = some_id(ConversationId, 2)
ATTEMPT = some_id(TurnId, 50)


def shown(tables: Any, id: ConversationId = CONVERSATION) -> BranchId:
    found = drive(tables.conversation("ann", id))
    assert found is not None
    return found.branch


def request(turn: TurnId | None = None, **details: Any) -> ForkRequest:
    fresh = conversation(id=FORKED, branch=NEW, **details)
    return ForkRequest("ann", CONVERSATION, turn, fresh, 1, 1)


def test_undo_shows_a_branch_without_the_last_turn() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN)
    moved = drive(move(tables, "ann", lane, Undo(NEW), ATTEMPT))
    assert shown(tables) == NEW
    assert (moved.branch.head, moved.branch.length) == (turns[0].id, 1)
    assert drive(tables.branch(BRANCH)) == lane


def test_undo_carries_settled_turns_unless_it_forgets() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None)
    carried = drive(move(tables, "ann", lane, Undo(NEW), ATTEMPT)).branch
    assert carried.length == 2
    assert drive(tables.turns(NEW, 0, 9, 9))[0].kind is TurnKind.SETTLED
    tables, lane, turns = stored(PLAIN, PLAIN, None)
    assert drive(move(tables, "ann", lane, Undo(NEW, forget=True), ATTEMPT)).branch.head == turns[0].id


def test_an_undo_that_has_happened_is_known_by_its_branch() -> None:
    tables, lane, _ = stored(PLAIN, PLAIN)
    assert drive(moved_before(tables, lane, Undo(NEW), ATTEMPT)) is None
    moved = drive(move(tables, "ann", lane, Undo(NEW), ATTEMPT))
    assert drive(moved_before(tables, moved.branch, Undo(NEW), ATTEMPT)) == moved
    assert drive(moved_before(tables, lane, Undo(NEW), ATTEMPT)) == moved


def test_a_switch_that_has_happened_is_known_by_its_name_whatever_is_shown() -> None:
    tables, lane, _ = stored(PLAIN)
    drive(tables.add_branch(Branch(id=OTHER, conversation=CONVERSATION)))
    for wish in (Switch(BRANCH), Switch(OTHER)):
        assert drive(moved_before(tables, lane, wish, ATTEMPT)) is None
    moved = drive(move(tables, "ann", lane, Switch(OTHER), ATTEMPT))
    assert drive(moved_before(tables, moved.branch, Switch(OTHER), ATTEMPT)) == moved
    assert drive(moved_before(tables, moved.branch, Switch(OTHER), some_id(TurnId, 51))) is None
    drive(move(tables, "ann", moved.branch, Switch(BRANCH), some_id(TurnId, 51)))
    assert drive(moved_before(tables, lane, Switch(OTHER), ATTEMPT)) == Moved(lane)


def test_only_the_last_few_switches_are_known() -> None:
    tables, lane, _ = stored(PLAIN)
    attempts = [some_id(TurnId, 50 + number) for number in range(KNOWN_SWITCHES + 1)]
    for attempt in attempts:
        drive(move(tables, "ann", lane, Switch(BRANCH), attempt))
    assert drive(tables.switches(CONVERSATION)) == tuple(attempts[1:])


def test_a_switch_takes_the_queue_along_and_one_to_the_same_branch_leaves_it() -> None:
    tables, lane, _ = stored(PLAIN)
    drive(tables.add_branch(Branch(id=OTHER, conversation=CONVERSATION)))
    drive(tables.add_ticket(ticket(50)))
    lane = drive(tables.branch(BRANCH)) or lane
    drive(move(tables, "ann", lane, Switch(BRANCH), ATTEMPT))
    assert [each.number for each in drive(tables.tickets(BRANCH))] == [1]
    drive(move(tables, "ann", lane, Switch(OTHER), ATTEMPT))
    assert shown(tables) == OTHER
    assert len(drive(tables.tickets(OTHER))) == 1
    with pytest.raises(Superseded):
        drive(move(tables, "ann", lane, Switch(OTHER), ATTEMPT))


def test_what_would_be_refused_is_refused_before_a_turn_is_stopped_for_it() -> None:
    tables, lane, _ = stored(None)
    elsewhere = some_id(BranchId, 7)
    drive(tables.add_branch(Branch(id=elsewhere, conversation=FORKED)))
    for branch in (OTHER, elsewhere):
        with pytest.raises(BranchNotFound):
            drive(check_move(tables, "ann", lane, Switch(branch), kept=ATTEMPT))
        with pytest.raises(BranchNotFound):
            drive(move(tables, "ann", lane, Switch(branch), ATTEMPT))
    drive(check_move(tables, "ann", lane, Switch(BRANCH), kept=None))
    drive(check_move(tables, "ann", lane, Undo(NEW), kept=ATTEMPT))
    with pytest.raises(TurnNotFound):
        drive(check_move(tables, "ann", lane, Undo(NEW), kept=None))


@pytest.mark.parametrize("number", [1, 2, None])
def test_a_fork_shares_the_line_up_to_a_turn(number: int | None) -> None:
    tables, lane, turns = stored(PLAIN, PLAIN)
    wanted = request(turns[number - 1].id if number else None)
    made = drive(fork(tables, wanted))
    assert made == wanted.fresh
    found = drive(tables.branch(NEW))
    assert found is not None
    assert (found.conversation, found.head, found.length) == (
        FORKED,
        turns[(number or 2) - 1].id,
        number or 2,
    )
    assert drive(tables.branch(BRANCH)) == lane
    assert drive(fork(tables, wanted)) == made


def test_a_fork_is_refused_a_key_that_is_taken_and_leaves_nothing() -> None:
    tables, _, _ = stored(PLAIN)
    taken: Conversation = conversation(
        id=some_id(ConversationId, 3), branch=some_id(BranchId, 3), conversation_key="k"
    )
    drive(tables.add_conversation(taken))
    with pytest.raises(InvalidInput):
        drive(fork(tables, request(conversation_key="k")))
    assert drive(tables.conversation("ann", FORKED)) is None


def test_siblings_are_sorted_and_cut_to_what_was_asked_for() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN)
    asked = SiblingsRequest("ann", CONVERSATION, turns[1].id, 1, 1)
    found = drive(siblings(tables, asked))
    assert [(each.turn, each.branch) for each in found] == [(turns[1], lane.id)]
