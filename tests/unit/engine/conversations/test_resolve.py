"""Resolving a target to a conversation, and the items that its user is shown."""

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
from turnledger.engine.conversations.read import (
    LinePageRequest,
    TurnPageRequest,
    flagged_page,
    visible_to_user,
)
from turnledger.engine.conversations.resolve import (
    ResolveRequest,
    Target,
    check_live,
    insert,
    resolve,
    resolve_settled,
)
from turnledger.errors import ConversationDeleted, ConversationExpired, ConversationNotFound
from turnledger.model.conversation import Conversation, ConversationState, Within
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId
from turnledger.model.reset_policy import ResetPolicy
from turnledger.stores.memory import Database, MemoryTables

HOUR = 3600.0


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, ConversationNotFound),
        (conversation(state=ConversationState.DELETED), ConversationDeleted),
        (conversation(state=ConversationState.DELETED, expires_after=1), ConversationDeleted),
        (conversation(state=ConversationState.EXPIRED), ConversationExpired),
        (conversation(expires_after=1), ConversationExpired),
    ],
)
def test_check_live_raises_the_reason_for_a_missing_deleted_or_expired_conversation(
    found: Conversation | None, problem: type[Exception]
) -> None:
    with pytest.raises(problem):
        drive(check_live(memory_tables(), found, 1_000))


def test_target_may_mean_only_the_conversation_that_it_names() -> None:
    row = conversation(conversation_key="k")
    other = some_id(ConversationId, 99)
    assert Target("ann", row.id).may_repeat(row)
    assert Target("ann", None, "k", row).may_repeat(row)
    assert Target("ann", other, "k").may_repeat(row)
    assert Target("ann").may_repeat(row)
    assert not Target("ann", other).may_repeat(row)
    assert not Target("ann", None, "j", row).may_repeat(row)
    assert not Target("ann", None, "k", row).may_repeat(conversation(conversation_key=None))


def test_target_means_a_conversation_of_another_scope_only_by_id() -> None:
    row = conversation(conversation_key="k", scope="shop")
    other = some_id(ConversationId, 99)
    assert Target("ann", row.id).may_repeat(row)
    assert Target("ann", None, "k", scope="shop").may_repeat(row)
    assert Target("ann", scope="shop").may_repeat(row)
    assert not Target("ann", None, "k").may_repeat(row)
    assert not Target("ann", other, "k", scope="desk").may_repeat(row)
    assert not Target("ann").may_repeat(row)


def test_target_confined_to_a_scope_sees_only_conversations_of_that_scope() -> None:
    row = conversation(scope="shop")
    assert Target("ann").sees(row)
    assert Target("ann", within=Within("shop")).sees(row)
    assert not Target("ann", within=Within("")).sees(row)
    assert not Target("ann", within=Within("desk")).at(row.id).sees(row)


def test_target_by_key_may_mean_the_conversation_that_a_reset_took_the_key_from() -> None:
    row = conversation(conversation_key=None, former_conversation_key="k")
    assert Target("ann", None, "k", row).may_repeat(row)
    assert Target("ann", some_id(ConversationId, 99), "k").may_repeat(row)
    assert not Target("ann", None, "j", row).may_repeat(row)
    assert not Target("ann", some_id(ConversationId, 99)).may_repeat(row)


HOURLY = ResetPolicy.idle(HOUR)
LATER = 1 + round(HOUR * 1000)


def keyed(database: Database, **changes: Any) -> tuple[MemoryTables, Target]:
    """A conversation under the key "k", and a request for that key."""
    tables = memory_tables(database)
    row = conversation(conversation_key="k", **{"reset_policy": HOURLY, **changes})
    drive(insert(tables, row))
    fresh = conversation(id=FRESH, branch=some_id(BranchId, 99), conversation_key="k")
    return tables, Target("ann", None, "k", fresh)


FRESH = some_id(ConversationId, 99)


@pytest.mark.parametrize(
    "who", ["a running turn", "a system write", "who may not create", "who names the id", "a lost answer"]
)
def test_conversation_due_for_a_reset_is_returned_unchanged_where_no_reset_may_happen(who: str) -> None:
    tables, target = keyed(Database())
    if who == "a running turn":
        drive(tables.add_attempt(attempt(1)))
    elif who == "who may not create":
        target = Target("ann", None, "k")
    elif who == "who names the id":
        target = Target("ann", CONVERSATION, "k")
    elif who == "a lost answer":
        target = Target("ann", None, "k", conversation(conversation_key="k"))
    found = drive(resolve(tables, target, LATER, is_interaction=who != "a system write"))
    assert found.id == CONVERSATION
    if who != "a system write":
        assert drive(resolve_settled(tables, ResolveRequest(target, LATER))) == found


def test_reset_policy_given_with_a_key_replaces_the_policy_of_the_key() -> None:
    tables, target = keyed(Database())
    for policy in (ResetPolicy.daily(3), ResetPolicy.never()):
        given = replace(target, reset_policy=policy)
        assert drive(resolve_settled(tables, ResolveRequest(given, 2))) is None
        found = drive(resolve(tables, given, 2))
        assert found == conversation(conversation_key="k", reset_policy=policy)
        assert drive(resolve_settled(tables, ResolveRequest(given, 2))) == found
    assert drive(resolve(tables, target, LATER)).id == CONVERSATION
    given = replace(target, reset_policy=ResetPolicy.idle(1))
    assert drive(resolve_settled(tables, ResolveRequest(given, LATER))) is None
    assert drive(resolve(tables, given, LATER)).reset_policy == ResetPolicy.idle(1)


OTHER = some_id(BranchId, 9)
ONE = turn(1, output=[call("a")])
TWO = turn(2, input=[result("a")], output=[assistant()])


def tables() -> MemoryTables:
    made = lane_tables(head=TWO.id, length=2)
    for each in (ONE, TWO):
        drive(made.add_turn(each))
    return made


def test_item_hidden_from_the_user_hides_its_call_or_result_in_another_turn() -> None:
    assert visible_to_user([ONE, TWO], {}) == [user(), call("a"), result("a"), assistant()]
    assert visible_to_user([ONE, TWO], {TWO.id: {0: Flags(to_user=False)}}) == [user(), assistant()]
    assert len(visible_to_user([ONE, TWO], {TWO.id: {0: Flags(to_model=False)}})) == 4


def test_page_of_turns_carries_the_flags_of_those_turns() -> None:
    made = tables()
    flags = {0: Flags(to_user=False)}
    request = TurnPageRequest(conversation().id, None, 1, 1)
    assert drive(flagged_page(made, LinePageRequest(request))).flags == {}
    for each in (ONE, TWO):
        drive(made.save_flags(each.id, flags))
    page = drive(flagged_page(made, LinePageRequest(request)))
    assert (page.turns, page.flags) == ([TWO], {TWO.id: flags})


def test_page_of_turns_follows_the_branch_of_the_first_page() -> None:
    made = tables()
    first = drive(flagged_page(made, LinePageRequest(TurnPageRequest(conversation().id, None, 1, 1))))
    drive(made.add_branch(branch(id=OTHER)))
    assert drive(made.move_conversation(conversation().id, BRANCH, OTHER))
    before = TurnPageRequest(conversation().id, first.turns[0].number, 1, 1)
    assert drive(flagged_page(made, LinePageRequest(before, first.branch))).turns == [ONE]
    assert drive(flagged_page(made, LinePageRequest(before))).turns == []
