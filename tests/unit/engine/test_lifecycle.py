"""Create, branch, switch and reset: the place of an edit, the turns it carries over, and repeats."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import (
    BRANCH,
    CONVERSATION,
    attempt,
    branch,
    conversation,
    drive,
    lane_tables,
    memory_tables,
)
from tests.unit.model.shapes import assistant, call, result, some_id, turn, user
from turnledger import Ledger
from turnledger.engine.attempt.fork import Divergence, fork_at, open_branch, place_of, reuse_input
from turnledger.engine.lifecycle.create import ResetRequest, reset
from turnledger.engine.lifecycle.moves import SWITCHES_KEPT, Switch, move
from turnledger.errors import IdempotencyMismatch, InvalidInput, Superseded
from turnledger.model.conversation import Branch, Conversation, ConversationState, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.memory import MemoryTables

NEW = some_id(BranchId, 9)
SETTLED = (call("paid"), result("paid"))


def stored(*outputs: tuple[Item, ...] | None, inputs: dict[int, tuple[Item, ...]] | None = None) -> Any:
    """Tables with one conversation, and its branch: a turn for each output, settled where it is None."""
    tables = lane_tables()
    turns: list[Turn] = []
    settled = 0
    for number, output in enumerate(outputs, 1):
        made = turn(
            number,
            input=(inputs or {}).get(number, (user(f"q{number}"),)),
            output=SETTLED if output is None else output,
            parent=turns[-1].id if turns else None,
            kind=TurnKind.SETTLED if output is None else TurnKind.COMPLETED,
        )
        drive(tables.add_turn(made))
        turns.append(made)
        settled = number if output is None else settled
    lane = branch(length=len(turns), head=turns[-1].id if turns else None, settled=settled)
    drive(tables.save_branch(lane))
    return tables, lane, turns


def place(tables: Any, lane: Branch, turn: Turn, **wish: Any) -> Any:
    divergence = Divergence(branch=NEW, replaces=turn.id, **wish)
    return drive(place_of(tables, lane, drive(fork_at(tables, lane, divergence, turn))))


PLAIN = (assistant(),)


def test_place_of_an_edit_is_the_same_each_time() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None, PLAIN)
    first = place(tables, lane, turns[0])
    assert place(tables, lane, turns[0]) == first
    there = {turn.id for turn in turns}
    assert not there & {turn.id for turn in first.carried}
    elsewhere = replace(first.fork, branch=some_id(BranchId, 10))
    other = drive(place_of(tables, lane, elsewhere))
    assert {turn.id for turn in other.carried}.isdisjoint(turn.id for turn in first.carried)


def test_carried_turn_keeps_its_times_and_has_a_valid_id() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN, None)
    [carried] = place(tables, lane, turns[0]).carried
    assert carried.id.raw[:6] == turns[2].id.raw[:6]
    assert TurnId(str(carried.id)) == carried.id
    assert (carried.created_at, carried.committed_at) == (turns[2].created_at, turns[2].committed_at)


def test_divergence_may_mean_only_the_turn_it_replaces_or_the_last() -> None:
    id, other = some_id(TurnId, 1), some_id(TurnId, 2)
    assert Divergence(branch=NEW, replaces=id).may_replace(id)
    assert not Divergence(branch=NEW, replaces=other).may_replace(id)
    assert not Divergence(branch=NEW, replaces=other, regenerates=True).may_replace(id)
    assert Divergence(branch=NEW, regenerates=True).may_replace(id)
    assert not Divergence(branch=NEW, after=id).may_replace(id)


def test_regeneration_repeats_results_only_where_their_calls_are_pending() -> None:
    calls = (call("c1"),)
    inputs = {2: (result("c1"), user("and")), 3: (result("c1"),)}
    tables, lane, turns = stored(calls, calls, PLAIN, inputs=inputs)
    assert reuse_input(place(tables, lane, turns[1]), turns[1]) == turns[1].input
    tables, lane, turns = stored(calls, calls, PLAIN, None, inputs=inputs)
    assert reuse_input(place(tables, lane, turns[1]), turns[1]) == (user("and"),)
    with pytest.raises(InvalidInput):
        reuse_input(place(tables, lane, turns[2]), turns[2])


def test_open_branch_from_a_branch_no_longer_current_raises_superseded() -> None:
    tables, lane, turns = stored(PLAIN, PLAIN)
    other = Branch(id=some_id(BranchId, 5), conversation=CONVERSATION)
    drive(tables.add_branch(other))
    drive(tables.move_conversation(CONVERSATION, BRANCH, other.id))
    with pytest.raises(Superseded):
        drive(open_branch(tables, lane, place(tables, lane, turns[1])))


def test_open_branch_keeps_the_number_of_the_last_settled_turn() -> None:
    tables, lane, turns = stored(PLAIN, None, PLAIN, PLAIN)
    made = drive(open_branch(tables, lane, place(tables, lane, turns[3])))
    assert made.settled == 2
    tables, lane, turns = stored(PLAIN, PLAIN)
    made = drive(open_branch(tables, lane, place(tables, lane, turns[1])))
    assert made.settled == 0


def test_switches_of_a_conversation_are_remembered_up_to_a_limit() -> None:
    tables, lane, _ = stored(PLAIN)
    attempts = [some_id(TurnId, 50 + number) for number in range(SWITCHES_KEPT + 1)]
    for each in attempts:
        drive(move(tables, lane, Switch(BRANCH), each, 1))
    assert drive(tables.switches(CONVERSATION)) == tuple(attempts[1:])


async def test_idempotency_keys_of_other_owners_and_scopes_are_separate() -> None:
    async with await Ledger.open() as ledger:
        ids = {
            (await ledger.conversation(idempotency_key="once")).id,
            (await ledger.for_owner("other").conversation(idempotency_key="once")).id,
            (
                await ledger.for_owner("local", within=Within(scope="shop")).conversation(
                    idempotency_key="once"
                )
            ).id,
        }
        assert len(ids) == 3


async def test_idempotency_key_of_a_conversation_is_refused_for_a_turn_and_vice_versa() -> None:
    async with await Ledger.open() as ledger:
        await ledger.conversation(idempotency_key="chat")
        async with ledger.turn("Hello", idempotency_key="turn") as turn:
            turn.emit("Hi.")
        with pytest.raises(IdempotencyMismatch):
            await ledger.conversation(idempotency_key="turn")
        with pytest.raises(IdempotencyMismatch):
            async with ledger.turn("Hello", idempotency_key="chat"):
                pass


async def test_idempotency_key_with_an_id_or_without_create_is_refused() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        with pytest.raises(InvalidInput):
            await ledger.conversation(chat.id, idempotency_key="once")
        with pytest.raises(InvalidInput):
            await ledger.conversation(conversation_key="k", create=False, idempotency_key="once")


NEXT = some_id(ConversationId, 2)


@pytest.fixture
def tables() -> MemoryTables:
    return memory_tables()


def put(tables: MemoryTables, **changes: Any) -> Conversation:
    found = conversation(**{"conversation_key": "k", **changes})
    drive(tables.add_conversation(found))
    drive(tables.add_branch(branch(id=found.branch, conversation=found.id)))
    return found


def reset_request(replaces: ConversationId | None, number: int = 2) -> ResetRequest:
    fresh = conversation(
        id=some_id(ConversationId, number), branch=some_id(BranchId, number), conversation_key="k"
    )
    return ResetRequest("", "k", replaces, fresh, 1_000)


def test_reset_copies_the_settings_and_neither_title_nor_metadata(tables: MemoryTables) -> None:
    settings = {"internal": True, "expires_after": 10**6, "reset_policy": ResetPolicy.idle(60)}
    put(tables, title="T", metadata={"a": "b"}, revision=4, **settings)
    after = drive(reset(tables, reset_request(CONVERSATION)))
    assert after == replace(reset_request(None).fresh, **settings)


def test_reset_past_expiry_while_a_turn_runs_returns_the_same_conversation(tables: MemoryTables) -> None:
    before = put(tables, expires_after=1)
    drive(tables.add_attempt(attempt(1)))
    assert drive(reset(tables, reset_request(None))) == before


def test_reset_that_names_a_deleted_conversation_returns_the_one_with_the_key(tables: MemoryTables) -> None:
    before = put(tables)
    drive(tables.save_conversation(replace(before, state=ConversationState.DELETED)))
    made = drive(reset(tables, reset_request(CONVERSATION, 2)))
    assert made.id == NEXT
    assert drive(reset(tables, reset_request(CONVERSATION, 3))) == made
