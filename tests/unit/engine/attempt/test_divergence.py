"""Branching: where an edit goes, and what it takes along."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import BRANCH, CONVERSATION, branch, conversation, drive, ticket
from tests.unit.model.shapes import assistant, call, result, some_id, user
from turnledger.engine.attempt.divergence import (
    Divergence,
    asked_again,
    fork_at,
    last_turn,
    open_branch,
    place_of,
    replaced,
    turn_on,
)
from turnledger.errors import InvalidInput, Superseded, TurnNotFound
from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item
from turnledger.model.messages.calls import NOT_ANSWERED, open_calls
from turnledger.model.turn import Fork, Turn, TurnKind
from turnledger.stores.memory import Database, MemoryTables

NEW = some_id(BranchId, 9)
SETTLED = (call("paid"), result("paid"))


def stored(*outputs: tuple[Item, ...] | None, inputs: dict[int, tuple[Item, ...]] | None = None) -> Any:
    """Tables with one conversation, and its branch: a turn for each output, settled where it is None."""
    tables = MemoryTables(Database())
    drive(tables.add_conversation(conversation()))
    turns: list[Turn] = []
    settled = 0
    for number, output in enumerate(outputs, 1):
        turn = Turn.of(
            id=some_id(TurnId, number),
            branch=BRANCH,
            number=number,
            parent=turns[-1].id if turns else None,
            kind=TurnKind.SETTLED if output is None else TurnKind.COMPLETED,
            created_at=1,
            committed_at=2,
            input=(inputs or {}).get(number, (user(f"q{number}"),)),
            output=SETTLED if output is None else output,
        )
        drive(tables.add_turn(turn)) if turns else drive(_first(tables, turn))
        turns.append(turn)
        settled = number if output is None else settled
    lane = branch(length=len(turns), head=turns[-1].id if turns else None, settled=settled)
    drive(tables.save_branch(lane))
    return tables, lane, turns


async def _first(tables: MemoryTables, turn: Turn) -> None:
    await tables.add_branch(branch())
    await tables.add_turn(turn)


def place(tables: Any, lane: Branch, turn: Turn, **wish: Any) -> Any:
    asked = Divergence(branch=NEW, replaces=turn.id, **wish)
    return drive(place_of(tables, "ann", lane, drive(fork_at(tables, "ann", lane, asked, turn))))


PLAIN = (assistant(),)


def test_an_edit_goes_behind_the_turn_before_the_one_it_replaces() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, PLAIN)
    for number, turn in enumerate(turns):
        found = place(tables, lane, turn)
        assert found.fork == Fork(branch=NEW, base=turns[number - 1].id if number else None, number=number)
        assert (found.head, found.length, found.carried) == (found.fork.base, number, ())


def test_the_settled_turns_that_directly_follow_the_base_belong_to_it() -> None:
    tables, lane, turns = stored(PLAIN, None, None, PLAIN)
    wish = Divergence(branch=NEW, after=turns[0].id)
    assert drive(fork_at(tables, "ann", lane, wish)).base == turns[2].id
    assert drive(fork_at(tables, "ann", lane, replace(wish, forget=True))).base == turns[0].id
    assert place(tables, lane, turns[1]).fork.base == turns[2].id


def test_later_settled_turns_are_carried_in_their_order_and_numbered_anew() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None, PLAIN, None)
    found = place(tables, lane, turns[1])
    assert found.fork.base == turns[0].id
    assert [(turn.number, turn.kind, turn.branch) for turn in found.carried] == [
        (2, TurnKind.SETTLED, NEW),
        (3, TurnKind.SETTLED, NEW),
    ]
    assert [turn.parent for turn in found.carried] == [turns[0].id, found.carried[0].id]
    assert [turn.input[0].text for turn in found.carried] == ["q3", "q5"]
    assert (found.head, found.length) == (found.carried[1].id, 3)
    assert place(tables, lane, turns[1], forget=True).carried == ()


def test_a_place_is_the_same_however_often_it_is_asked_for() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None, PLAIN)
    first = place(tables, lane, turns[0])
    assert place(tables, lane, turns[0]) == first
    there = {turn.id for turn in turns}
    assert not there & {turn.id for turn in first.carried}
    elsewhere = replace(first.fork, branch=some_id(BranchId, 10))
    other = drive(place_of(tables, "ann", lane, elsewhere))
    assert {turn.id for turn in other.carried}.isdisjoint(turn.id for turn in first.carried)


def test_a_carried_turn_keeps_its_time_and_has_an_id_like_any_other() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None)
    [carried] = place(tables, lane, turns[0]).carried
    assert carried.id.raw[:6] == turns[2].id.raw[:6]
    assert TurnId(str(carried.id)) == carried.id
    assert (carried.created_at, carried.committed_at) == (turns[2].created_at, turns[2].committed_at)


def test_calls_that_wait_at_the_place_are_told_or_closed_by_what_is_carried() -> None:
    asks = (call("c1"),)
    tables, lane, turns = stored(asks, PLAIN, inputs={2: (result("c1"),)})
    assert place(tables, lane, turns[1]).pending == asks
    tables, lane, turns = stored(asks, PLAIN, asks, None, inputs={2: (result("c1"),), 4: (result("c1"),)})
    found = place(tables, lane, turns[1])
    assert found.pending == ()
    [carried] = found.carried
    assert [item.fields["output"] for item in carried.input] == [NOT_ANSWERED]
    assert open_calls((*turns[0].items, *carried.items)) == ()


def test_the_last_turn_is_the_last_that_was_not_settled() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None, None)
    assert drive(last_turn(tables, lane)) == turns[1]
    tables, lane, _ = stored(None)
    with pytest.raises(TurnNotFound):
        drive(last_turn(tables, lane))


def test_what_is_replaced_is_on_the_line_and_can_be_run_again() -> None:
    tables, lane, turns = stored(PLAIN, None)
    named = Divergence(branch=NEW, replaces=turns[1].id)
    assert drive(replaced(tables, "ann", lane, named)) == turns[1]
    with pytest.raises(InvalidInput):
        drive(replaced(tables, "ann", lane, replace(named, regenerates=True)))
    last = Divergence(branch=NEW, regenerates=True)
    assert drive(replaced(tables, "ann", lane, last)) == turns[0]
    assert drive(replaced(tables, "ann", lane, Divergence(branch=NEW, after=turns[0].id))) is None


def test_a_turn_of_another_owner_is_not_on_the_line() -> None:
    tables, lane, turns = stored(PLAIN)
    assert drive(turn_on(tables, "ann", lane, turns[0].id)) == turns[0]
    for owner, id in (("eve", turns[0].id), ("ann", some_id(TurnId, 99))):
        with pytest.raises(TurnNotFound):
            drive(turn_on(tables, owner, lane, id))


def test_a_divergence_may_mean_the_turn_that_is_last() -> None:
    id, other = some_id(TurnId, 1), some_id(TurnId, 2)
    assert Divergence(branch=NEW, replaces=id).may_mean(id)
    assert not Divergence(branch=NEW, replaces=other).may_mean(id)
    assert not Divergence(branch=NEW, replaces=other, regenerates=True).may_mean(id)
    assert Divergence(branch=NEW, regenerates=True).may_mean(id)
    assert not Divergence(branch=NEW, after=id).may_mean(id)


def test_results_are_asked_again_only_where_their_calls_still_wait() -> None:
    asks = (call("c1"),)
    inputs = {2: (result("c1"), user("and")), 3: (result("c1"),)}
    tables, lane, turns = stored(asks, asks, PLAIN, inputs=inputs)
    assert asked_again(place(tables, lane, turns[1]), turns[1]) == turns[1].input
    tables, lane, turns = stored(asks, asks, PLAIN, None, inputs=inputs)
    assert asked_again(place(tables, lane, turns[1]), turns[1]) == (user("and"),)
    with pytest.raises(InvalidInput):
        asked_again(place(tables, lane, turns[2]), turns[2])


def test_opening_a_branch_moves_the_conversation_and_its_queue_with_all_that_is_carried() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None)
    for number in (31, 32):
        drive(tables.add_ticket(ticket(number)))
    lane = drive(tables.branch(BRANCH)) or lane
    found = place(tables, lane, turns[1])
    made = drive(open_branch(tables, "ann", lane, found))
    assert made == drive(tables.branch(NEW))
    assert (made.start, made.length, made.head, made.settled) == (1, 2, found.head, 2)
    assert made.last_ticket >= 2
    assert [each.attempt for each in drive(tables.tickets(NEW))] == [
        some_id(TurnId, 31),
        some_id(TurnId, 32),
    ]
    assert drive(tables.tickets(BRANCH)) == []
    assert drive(tables.turns(NEW, 0, 9, 9)) == list(found.carried)
    shown = drive(tables.conversation("ann", CONVERSATION))
    assert shown is not None
    assert shown.branch == NEW
    origin = drive(tables.origin(NEW))
    assert origin is not None
    assert origin.base == turns[0].id


def test_a_branch_that_is_shown_no_more_opens_none() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN)
    drive(tables.move_conversation(CONVERSATION, BRANCH, some_id(BranchId, 5)))
    with pytest.raises(Superseded):
        drive(open_branch(tables, "ann", lane, place(tables, lane, turns[1])))


def test_the_bound_of_settled_turns_goes_along() -> None:
    tables, lane, turns = stored(PLAIN, None, PLAIN, PLAIN)
    made = drive(open_branch(tables, "ann", lane, place(tables, lane, turns[3])))
    assert made.settled == 2
    tables, lane, turns = stored(PLAIN, PLAIN)
    made = drive(open_branch(tables, "ann", lane, place(tables, lane, turns[1])))
    assert made.settled == 0
