"""Lanes, attempts, effects and tokens: whatever no longer fits together is found and named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.check.test_check import raw_id
from tests.unit.engine.check.test_lines import shown, turn_at
from tests.unit.engine.lived_in import Lived, change_branch, fail, remove_turn, say
from turnledger import AttemptState, Rule, TokenScope
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TokenId, TurnId
from turnledger.model.turn import Attempt
from turnledger.stores.memory import Database
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import Tool

Damage = Callable[[Database, Lived], object]
NOWHERE = TurnId("turn_" + raw_id(9))


def waiting(database: Database, lived: Lived) -> Attempt:
    """The failed attempt whose effects wait to be settled."""
    unsettled = shown(database, lived.waiting).unsettled
    assert unsettled is not None
    return database.attempts[unsettled]


def remove_attempt(database: Database, attempt: Attempt) -> None:
    for table in (database.attempts, database.journals, database.logs):
        table.pop(attempt.id, None)
    stored = database.stored[attempt.owner]
    database.stored[attempt.owner] = replace(stored, bytes=stored.bytes - attempt.bytes)


def change(database: Database, attempt: Attempt, **changes: object) -> None:
    database.attempts[attempt.id] = replace(attempt, **changes)


def forget_that_effects_wait(database: Database, lived: Lived) -> None:
    change_branch(database, shown(database, lived.waiting), unsettled=None)


def lose_the_attempt_that_waits(database: Database, lived: Lived) -> None:
    attempt = waiting(database, lived)
    remove_attempt(database, attempt)


def take_up_what_waits(database: Database, lived: Lived) -> None:
    attempt = waiting(database, lived)
    change(database, attempt, state=AttemptState.RESUMED, journaled=0)
    del database.journals[attempt.id]


def wait_for_nothing(database: Database, lived: Lived) -> None:
    attempt = waiting(database, lived)
    change(database, attempt, journaled=0)
    del database.journals[attempt.id]


def wait_on_another_branch(database: Database, lived: Lived) -> None:
    """Both branches say that they wait, and only one of them can."""
    change_branch(database, shown(database, lived.kept), unsettled=waiting(database, lived).id)


def lose_records(database: Database, lived: Lived) -> None:
    """A result, so that the effects are still there."""
    journal = database.journals[waiting(database, lived).id]
    del journal[max(journal)]


def tear_a_record(database: Database, lived: Lived) -> None:
    attempt = next(each for each in database.attempts.values() if each.journaled == 0)
    database.journals[attempt.id] = {0: b"{"}
    change(database, attempt, journaled=1)


def lose_the_conversation(database: Database, lived: Lived) -> None:
    attempt = set_aside(database)
    change(database, attempt, conversation=ConversationId("conv_" + raw_id(9)))


def lose_the_branch(database: Database, lived: Lived) -> None:
    change(database, set_aside(database), branch=BranchId("branch_" + raw_id(9)))


def set_aside(database: Database) -> Attempt:
    """One without effects."""
    return next(
        each
        for each in database.attempts.values()
        if each.state is AttemptState.FAILED and not each.journaled
    )


def commit_what_failed(database: Database, lived: Lived) -> None:
    failed = waiting(database, lived)
    taken = turn_at(database, lived.plain, 2)
    database.attempts[taken] = replace(failed, id=taken, journaled=0)


def keep_the_row_of_a_committed_one(database: Database, lived: Lived) -> None:
    taken = turn_at(database, lived.plain, 2)
    database.attempts[taken] = replace(
        waiting(database, lived), id=taken, journaled=0, state=AttemptState.COMPLETED
    )


def commit_what_is_nowhere(database: Database, lived: Lived) -> None:
    database.attempts[NOWHERE] = replace(
        waiting(database, lived), id=NOWHERE, journaled=0, state=AttemptState.KEPT
    )


def settle_what_is_nowhere(database: Database, lived: Lived) -> None:
    database.attempts[NOWHERE] = replace(
        waiting(database, lived), id=NOWHERE, journaled=0, state=AttemptState.SETTLED
    )


def hold_a_lane_by_nobody(database: Database, lived: Lived) -> None:
    change_branch(database, shown(database, lived.plain), running=NOWHERE)


def hold_a_lane_by_what_failed(database: Database, lived: Lived) -> None:
    change_branch(database, shown(database, lived.waiting), running=waiting(database, lived).id)


@pytest.mark.parametrize(
    ("damage", "rule", "said"),
    [
        (forget_that_effects_wait, Rule.EFFECT, "Its tools have acted, and it does not wait to be settled"),
        (lose_the_attempt_that_waits, Rule.EFFECT, "which is not there: what its tools did is lost"),
        (take_up_what_waits, Rule.EFFECT, "which is resumed: they would be told twice"),
        (wait_for_nothing, Rule.EFFECT, "whose journal has none"),
        (wait_on_another_branch, Rule.EFFECT, "they would be told in the wrong place"),
        (lose_records, Rule.EFFECT, "steps, but its journal holds"),
        (tear_a_record, Rule.DOCUMENT, "Its journal cannot be read"),
        (lose_the_conversation, Rule.ORPHAN, "belongs to a conversation that is not there"),
        (lose_the_branch, Rule.ORPHAN, "which its conversation does not have"),
        (commit_what_failed, Rule.ATTEMPT, "in the history as completed, and set aside as failed"),
        (keep_the_row_of_a_committed_one, Rule.ATTEMPT, "and set aside as completed"),
        (commit_what_is_nowhere, Rule.ATTEMPT, "It is kept, but not in the history: its answer is lost"),
        (settle_what_is_nowhere, Rule.EFFECT, "It is settled, but not in the history"),
        (hold_a_lane_by_nobody, Rule.LANE, "which is not there: it does not come free"),
        (hold_a_lane_by_what_failed, Rule.LANE, "which is failed: it does not come free"),
    ],
)
async def test_damage_is_seen_and_named(
    lived: Lived, database: Database, damage: Damage, rule: Rule, said: str
) -> None:
    await fail(lived.plain, "one that fails without effects")
    assert await lived.ledger.check() == []
    damage(database, lived)
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.owner) == (rule, "ann")
    assert said in finding.message


@pytest.fixture
async def running(lived: Lived, database: Database) -> Attempt:
    """An attempt that runs, as a process left it."""
    gate = Gate()
    held = asyncio.ensure_future(say(lived.plain, "four", Tool("look", gate=gate)))
    await gate.arrived()
    branch = shown(database, lived.plain)
    assert branch.running is not None
    attempt = database.attempts[branch.running]
    journal = dict(database.journals[attempt.id])
    lease = database.leases[attempt.lease]
    gate.release()
    await held
    database.branches[branch.id] = branch
    remove_turn(database, attempt.id)
    database.attempts[attempt.id] = attempt
    database.journals[attempt.id] = journal
    other = LeaseId("lease_" + raw_id(9))
    database.leases[other] = replace(lease, id=other)
    change(database, attempt, lease=other)
    return database.attempts[attempt.id]


async def test_a_running_attempt_and_its_lane_know_each_other(
    lived: Lived, database: Database, running: Attempt
) -> None:
    assert await lived.ledger.check() == []
    [note] = await lived.ledger.check(at_rest=True)
    assert (note.rule, note.turn) == (Rule.NOT_AT_REST, running.id)

    change_branch(database, shown(database, lived.plain), running=None)
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.LANE, running.id)
    assert "It runs, but the lane is held by nobody" in finding.message


async def test_one_attempt_runs_on_a_branch(lived: Lived, database: Database, running: Attempt) -> None:
    other = replace(running, id=NOWHERE, journaled=0)
    database.attempts[other.id] = other
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.LANE, other.id)
    assert f"but the lane is held by {running.id}" in finding.message


async def test_a_running_attempt_is_found_through_its_lease(
    lived: Lived, database: Database, running: Attempt
) -> None:
    del database.leases[running.lease]
    for at_rest in (False, True):
        [finding] = await lived.ledger.check(at_rest=at_rest)
        assert finding.rule is Rule.LANE
        assert "nobody finds it and ends it" in finding.message


async def test_a_fence_is_never_below_that_of_its_holder_but_may_be_above(
    lived: Lived, database: Database, running: Attempt
) -> None:
    branch = shown(database, lived.plain)
    change_branch(database, branch, fence=branch.fence + 1)
    assert await lived.ledger.check() == []
    change_branch(database, branch, fence=branch.fence - 1)
    [finding] = await lived.ledger.check()
    assert finding.rule is Rule.LANE
    assert "above its own" in finding.message


async def test_a_lane_is_held_by_an_attempt_of_its_own_branch(
    lived: Lived, database: Database, running: Attempt
) -> None:
    change_branch(database, shown(database, lived.kept), running=running.id)
    [finding] = await lived.ledger.check()
    assert finding.rule is Rule.LANE
    assert f"which runs on {running.branch}" in finding.message


async def test_nothing_runs_on_a_conversation_that_has_ended(
    lived: Lived, database: Database, running: Attempt
) -> None:
    found = database.conversations[lived.plain.id]
    database.conversations[found.id] = replace(found, state=ConversationState.EXPIRED, title=None)
    database.ended[found.id] = None
    [finding] = await lived.ledger.check()
    assert "though its conversation has ended" in finding.message


async def test_what_waits_on_a_conversation_that_has_ended_waits_no_more(
    lived: Lived, database: Database
) -> None:
    attempt = waiting(database, lived)
    await lived.waiting.delete()
    assert await lived.ledger.check() == []
    await lived.waiting.delete(purge=True)
    assert await lived.ledger.check() == []
    remove_attempt(database, attempt)
    assert await lived.ledger.check() == []


async def test_what_waits_on_a_conversation_that_can_be_restored_waits_on(
    lived: Lived, database: Database
) -> None:
    attempt = waiting(database, lived)
    await lived.waiting.delete()
    assert await lived.ledger.check() == []
    remove_attempt(database, attempt)
    [finding] = await lived.ledger.check()
    assert "what its tools did is lost" in finding.message


async def test_nothing_runs_on_a_conversation_that_is_deleted(lived: Lived, database: Database) -> None:
    gate = Gate()
    held = asyncio.ensure_future(say(lived.plain, "four", "Wait", gate))
    await gate.arrived()
    found = database.conversations[lived.plain.id]
    gone = replace(found, state=ConversationState.DELETED, purge_at=1, conversation_key=None)
    database.by_key.pop(("ann", "", "plain"))
    database.conversations[found.id] = gone
    [finding] = await lived.ledger.check()
    assert "though its conversation has ended" in finding.message
    held.cancel()
    await asyncio.wait((held,))


ALL = tuple(TokenScope)


async def family(lived: Lived) -> tuple[Token, Token]:
    """A token, and one that it made."""
    tokens = lived.ledger.tokens
    parent, _ = await tokens.create(owner="ann", scopes=ALL, chat_scope="shop", models=["a"])
    child, _ = await tokens.create(scopes=ALL, parent=parent.id)
    return parent, child


def change_token(database: Database, id: TokenId, **changes: Any) -> None:
    database.tokens[id] = replace(database.tokens[id], **changes)


async def test_tokens_in_every_state_are_sound(lived: Lived) -> None:
    parent, child = await family(lived)
    assert await lived.ledger.check() == []
    await lived.ledger.tokens.revoke(child.id)
    assert await lived.ledger.check() == []
    await lived.ledger.tokens.revoke(parent.id)
    await lived.ledger.tokens.create(scopes=ALL, lifetime=1)
    assert await lived.ledger.check() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": ()}, "other models"),
        ({"chat_scope": ""}, "other conversations"),
    ],
)
async def test_a_token_beyond_its_maker_is_seen(
    lived: Lived, database: Database, changes: dict[str, Any], said: str
) -> None:
    parent, child = await family(lived)
    change_token(database, child.id, **changes)
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.owner) == (Rule.TOKEN, "ann")
    assert finding.message == f"{child.id} gives what {parent.id}, which made it, does not: {said}."


async def test_a_token_that_outlives_its_maker_is_seen(lived: Lived, database: Database) -> None:
    parent, child = await family(lived)
    await lived.ledger.tokens.revoke(parent.id)
    change_token(database, child.id, revoked_at=None)
    [finding] = await lived.ledger.check()
    assert finding.message == f"{child.id} was made by {parent.id}, which is revoked: it still lets in."
    del database.tokens[parent.id], database.by_digest[parent.digest]
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.owner) == (Rule.TOKEN, "ann")
    assert f"{parent.id}, which is not there" in finding.message


async def test_a_token_may_outlast_the_row_of_its_maker_when_both_have_expired(
    lived: Lived, database: Database
) -> None:
    parent, child = await family(lived)
    change_token(database, child.id, expires_at=1)
    del database.tokens[parent.id], database.by_digest[parent.digest]
    assert await lived.ledger.check() == []


async def test_a_token_that_its_text_does_not_lead_to_is_seen(lived: Lived, database: Database) -> None:
    _, child = await family(lived)
    del database.by_digest[child.digest]
    [finding] = await lived.ledger.check()
    assert finding.rule is Rule.TOKEN
    assert finding.message == f"{child.id} is not found by its text: it lets nobody in."


async def test_a_revocation_that_nobody_was_told_of_is_seen(lived: Lived, database: Database) -> None:
    _, child = await family(lived)
    change_token(database, child.id, revoked_at=1)
    [finding] = await lived.ledger.check()
    assert finding.message == f"{child.id} is revoked, but its owner's admission is as ever: it may let in."


async def visitor(lived: Lived) -> tuple[Share, Token]:
    share, code = await lived.ledger.shares.create(scope="shop", owner="ann", visitor_lifetime=None)
    return share, (await lived.ledger.shares.exchange(code, "n" * 22)).token


async def test_a_visitor_who_outlives_his_link_is_seen(lived: Lived, database: Database) -> None:
    share, token = await visitor(lived)
    assert await lived.ledger.check() == []
    await lived.ledger.shares.revoke(share.id)
    assert await lived.ledger.check() == []
    change_token(database, token.id, revoked_at=None)
    [finding] = await lived.ledger.check()
    assert finding.message == f"{token.id} was got by {share.id}, which is revoked: it still lets in."


async def test_a_visitor_whose_link_is_gone_is_seen(lived: Lived, database: Database) -> None:
    share, token = await visitor(lived)
    del database.shares[share.id]
    [finding] = await lived.ledger.check()
    assert finding.message.startswith(f"{token.id} was got by {share.id}, which is not there")


async def test_a_visitor_beyond_his_link_is_seen(lived: Lived, database: Database) -> None:
    share, token = await visitor(lived)
    change_token(database, token.id, chat_scope="desk")
    [finding] = await lived.ledger.check()
    assert (
        finding.message == f"{token.id} was got by {share.id}, and gives other conversations than that does."
    )
