"""Create, move and reset: done once although an answer is lost, and refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.attempt.test_divergence import PLAIN, stored
from tests.unit.engine.stage import BRANCH, CONVERSATION, branch, conversation, drive, ticket
from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.engine.lifecycle.create import NamedRequest, ResetRequest, named_by, reset
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
from turnledger.errors import (
    BranchNotFound,
    IdempotencyMismatch,
    InvalidInput,
    Superseded,
    TurnNotFound,
)
from turnledger.model.conversation import Branch, Conversation, ConversationState, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.retention import ResetPolicy
from turnledger.model.turn import TurnKind
from turnledger.stores.memory import Database, MemoryTables

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
    for shown in (OTHER, elsewhere):
        with pytest.raises(BranchNotFound):
            drive(check_move(tables, "ann", lane, Switch(shown), kept=ATTEMPT))
        with pytest.raises(BranchNotFound):
            drive(move(tables, "ann", lane, Switch(shown), ATTEMPT))
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


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_it_is_the_same_one_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chats.db'}"
    async with await Ledger.open(url) as ledger:
        made = await ledger.conversation(title="Orders", idempotency_key="once")
    async with await Ledger.open(url) as ledger:
        again = await ledger.conversation(title="Orders", idempotency_key="once")
        assert (made.is_new, again.is_new, again.id) == (True, False, made.id)
        assert await ledger.check() == []


async def test_another_owner_and_another_scope_have_keys_of_their_own() -> None:
    async with await Ledger.open() as ledger:
        ids = {
            (await ledger.conversation(idempotency_key="once")).id,
            (await ledger.conversation(idempotency_key="once", owner="other")).id,
            (await ledger.conversation(idempotency_key="once", within=Within(scope="shop"))).id,
        }
        assert len(ids) == 3


async def test_a_turn_cannot_go_by_the_key_of_a_conversation_nor_the_other_way_round() -> None:
    async with await Ledger.open() as ledger:
        await ledger.conversation(idempotency_key="chat")
        async with ledger.turn("Hello", idempotency_key="turn") as turn:
            turn.emit("Hi.")
        with pytest.raises(IdempotencyMismatch):
            await ledger.conversation(idempotency_key="turn")
        with pytest.raises(IdempotencyMismatch):
            async with ledger.turn("Hello", idempotency_key="chat"):
                pass


async def test_what_is_named_by_its_id_is_not_made() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        with pytest.raises(InvalidInput):
            await ledger.conversation(chat.id, idempotency_key="once")
        with pytest.raises(InvalidInput):
            await ledger.conversation(conversation_key="k", create=False, idempotency_key="once")


NEXT = some_id(ConversationId, 2)


@pytest.fixture
def tables() -> MemoryTables:
    return MemoryTables(Database())


def put(tables: MemoryTables, **changes: Any) -> Conversation:
    found = conversation(**{"conversation_key": "k", **changes})
    drive(tables.add_conversation(found))
    drive(tables.add_branch(branch(id=found.branch, conversation=found.id)))
    return found


def asked(replaces: ConversationId | None, number: int = 2, **changes: Any) -> ResetRequest:
    fresh = conversation(
        id=some_id(ConversationId, number), branch=some_id(BranchId, number), conversation_key="k"
    )
    return replace_fields(ResetRequest("ann", "", "k", replaces, fresh, 1_000), changes)


def replace_fields(request: ResetRequest, changes: dict[str, Any]) -> ResetRequest:
    return ResetRequest(**{**vars(request), **changes})


def named(tables: MemoryTables) -> ConversationId | None:
    return drive(named_by(tables, NamedRequest("ann", "", "k")))


def test_the_settings_are_handed_over_and_the_words_are_not(tables: MemoryTables) -> None:
    settings = {"internal": True, "expires_after": 10**6, "reset_policy": ResetPolicy.idle(60)}
    put(tables, title="T", metadata={"a": "b"}, revision=4, **settings)
    after = drive(reset(tables, asked(CONVERSATION)))
    assert after == replace(asked(None).fresh, **settings)


def test_the_old_conversation_stays_and_remembers_its_key(tables: MemoryTables) -> None:
    before = put(tables, title="T")
    drive(reset(tables, asked(CONVERSATION)))
    kept = drive(tables.conversation("ann", CONVERSATION))
    assert kept == replace(before, conversation_key=None, former_conversation_key="k")


@pytest.mark.parametrize("is_marked", [False, True])
def test_an_expired_conversation_is_replaced_in_any_case(tables: MemoryTables, is_marked: bool) -> None:
    state = ConversationState.EXPIRED if is_marked else ConversationState.LIVE
    before = put(tables, expires_after=1, state=ConversationState.LIVE)
    drive(tables.save_conversation(replace(before, state=state)))
    after = drive(reset(tables, asked(None)))
    assert after.id == NEXT
    kept = drive(tables.conversation("ann", CONVERSATION))
    assert kept is not None
    assert kept.state is state


def test_a_conversation_whose_time_is_over_while_a_turn_runs_has_not_expired(tables: MemoryTables) -> None:
    before = put(tables, expires_after=1)
    drive(tables.save_branch(branch(running=some_id(TurnId, 1))))
    assert drive(reset(tables, asked(None))) == before


def test_a_deleted_conversation_leaves_the_key_to_whoever_has_it(tables: MemoryTables) -> None:
    before = put(tables)
    drive(tables.save_conversation(replace(before, state=ConversationState.DELETED)))
    made = drive(reset(tables, asked(CONVERSATION, 2)))
    assert made.id == NEXT
    assert drive(reset(tables, asked(CONVERSATION, 3))) == made
