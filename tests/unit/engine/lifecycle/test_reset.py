"""A reset names what it replaces, hands over settings but no words, and says what it cannot do."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import CONVERSATION, branch, conversation, drive
from tests.unit.model.shapes import some_id
from turnledger.engine.lifecycle.create import NamedRequest, ResetRequest, named_by, reset
from turnledger.errors import ConversationNotFound, InvalidInput
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.retention import ResetPolicy
from turnledger.stores.memory import Database, MemoryTables

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


def test_a_key_that_nobody_has_gets_a_conversation(tables: MemoryTables) -> None:
    assert named(tables) is None
    request = asked(None)
    assert drive(reset(tables, request)) == request.fresh
    assert named(tables) == NEXT


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


def test_who_comes_second_gets_what_the_first_one_made(tables: MemoryTables) -> None:
    put(tables)
    first = drive(reset(tables, asked(CONVERSATION, 2)))
    assert drive(reset(tables, asked(CONVERSATION, 3))) == first
    assert drive(reset(tables, asked(None, 3))) == first
    assert drive(reset(tables, asked(CONVERSATION, 2))) == first
    assert named(tables) == first.id


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


def test_what_never_had_the_key_cannot_be_replaced(tables: MemoryTables) -> None:
    put(tables)
    put(tables, id=some_id(ConversationId, 9), branch=some_id(BranchId, 9), conversation_key="j")
    with pytest.raises(InvalidInput, match="never had"):
        drive(reset(tables, asked(some_id(ConversationId, 9))))
    with pytest.raises(ConversationNotFound):
        drive(reset(tables, asked(some_id(ConversationId, 8))))
    with pytest.raises(ConversationNotFound):
        drive(reset(tables, asked(CONVERSATION, owner="eve")))
    assert named(tables) == CONVERSATION


def test_a_deleted_conversation_leaves_the_key_to_whoever_has_it(tables: MemoryTables) -> None:
    before = put(tables)
    drive(tables.save_conversation(replace(before, state=ConversationState.DELETED)))
    made = drive(reset(tables, asked(CONVERSATION, 2)))
    assert made.id == NEXT
    assert drive(reset(tables, asked(CONVERSATION, 3))) == made
