"""Create, move and reset: done once although an answer is lost, and refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.attempt.test_divergence import PLAIN, stored
from tests.unit.engine.stage import BRANCH, CONVERSATION, branch, conversation, drive
from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.engine.lifecycle.create import ResetRequest, reset
from turnledger.engine.lifecycle.moves import (
    KNOWN_SWITCHES,
    ForkRequest,
    Switch,
    move,
)
from turnledger.errors import (
    IdempotencyMismatch,
    InvalidInput,
)
from turnledger.model.conversation import Conversation, ConversationState, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.retention import ResetPolicy
from turnledger.stores.memory import Database, MemoryTables

NEW, OTHER = some_id(BranchId, 9), some_id(BranchId, 8)
FORKED = some_id(ConversationId, 2)


def request(turn: TurnId | None = None, **details: Any) -> ForkRequest:
    fresh = conversation(id=FORKED, branch=NEW, **details)
    return ForkRequest("ann", CONVERSATION, turn, fresh, 1, 1)


def test_only_the_last_few_switches_are_known() -> None:
    tables, lane, _ = stored(PLAIN)
    attempts = [some_id(TurnId, 50 + number) for number in range(KNOWN_SWITCHES + 1)]
    for attempt in attempts:
        drive(move(tables, "ann", lane, Switch(BRANCH), attempt))
    assert drive(tables.switches(CONVERSATION)) == tuple(attempts[1:])


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


def test_the_settings_are_handed_over_and_the_words_are_not(tables: MemoryTables) -> None:
    settings = {"internal": True, "expires_after": 10**6, "reset_policy": ResetPolicy.idle(60)}
    put(tables, title="T", metadata={"a": "b"}, revision=4, **settings)
    after = drive(reset(tables, asked(CONVERSATION)))
    assert after == replace(asked(None).fresh, **settings)


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
