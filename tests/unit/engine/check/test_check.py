"""The check finds nothing in a sound store and reports damage to rows, lanes, attempts and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.populated_store import (
    PopulatedStore,
    change_branch,
    expect_found,
    fail,
    findings,
    populate,
    raw_id,
    remove_turn,
    repaired,
    run_turn,
    shown,
    turn_at,
)
from tests.unit.engine.stage import memory_whole
from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.engine.attempt.idempotency import claim_name
from turnledger.engine.check.audit import REMEMBERED, Audit, Location, TooManyFindings
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.ports import Inspection, Store
from turnledger.errors import StoreCorrupt, StoreUnavailable
from turnledger.hosting import Host, TokenScope
from turnledger.model.access.token import Token
from turnledger.model.conversation import ConversationState, Within
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TokenId, TurnId
from turnledger.model.turn import Attempt, AttemptState
from turnledger.stores.memory import Database, MemoryStore
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import Tool
from turnledger.types import Rule


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "chats.db")
    yield made
    await made.close()


async def test_check_of_a_new_store_finds_nothing(store: Store) -> None:
    report = await store.inspect(check, CheckRequest(at_rest=True))
    assert (report.findings, report.conversations, report.is_whole) == ([], 0, True)


async def test_check_of_a_store_after_every_operation_finds_nothing(store: Store) -> None:
    populated = await populate(store)
    assert await populated.ledger.check(at_rest=True) == []
    report = await store.inspect(check, CheckRequest())
    assert (report.conversations, report.branches, report.is_whole) == (8, 12, True)
    assert report.turns >= 18
    for purge in (False, True):
        for chat in (populated.edited, populated.settled, populated.waiting, populated.kept):
            await chat.delete(purge=purge)
        assert await populated.ledger.check(at_rest=True) == []


async def test_check_reports_running_and_queued_turns_only_at_rest_and_not_as_damage(store: Store) -> None:
    ledger = await Ledger.over(store)
    chat = await ledger.conversation()
    gate = Gate()
    held = asyncio.ensure_future(run_turn(chat, "one", "Wait", gate))
    await gate.arrived()
    queued = asyncio.ensure_future(run_turn(chat, "two"))
    while len(await findings(store, at_rest=True)) < 2:
        await asyncio.sleep(0)
    assert await findings(store) == []
    found = await findings(store, at_rest=True)
    assert [finding.rule for finding in found] == [Rule.NOT_AT_REST] * 2
    assert not any(finding.is_damage for finding in found)
    gate.release()
    await asyncio.gather(held, queued)
    assert await findings(store, at_rest=True) == []


async def test_check_follows_lines_and_lists_over_several_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("audit", "check", "lines"):
        monkeypatch.setattr(f"turnledger.engine.check.{module}.PAGE", 2)
    store = MemoryStore()
    populated = await populate(store)
    chats = [await populated.ledger.for_owner(f"{count}").conversation() for count in range(5)]
    for count in range(9):
        await asyncio.gather(*(run_turn(chat, f"q{count}", idempotency_key=f"{count}") for chat in chats))
    report = await store.inspect(check, CheckRequest())
    assert (report.findings, report.conversations) == ([], 13)
    assert report.turns >= 63
    await populated.ledger.close()


def lose_current_branch(database: Database, populated: PopulatedStore) -> None:
    found = database.conversations[populated.plain.id]
    database.conversations[found.id] = replace(found, branch=lived_branch(7))


def take_foreign_branch(database: Database, populated: PopulatedStore) -> None:
    found, other = database.conversations[populated.plain.id], database.conversations[populated.kept.id]
    database.conversations[found.id] = replace(found, branch=other.branch)


def give_two_one_key(database: Database, populated: PopulatedStore) -> None:
    found = database.conversations[populated.forked.id]
    database.conversations[found.id] = replace(found, conversation_key="plain")


def delete_for_ever(database: Database, populated: PopulatedStore) -> None:
    found = database.conversations[populated.kept.id]
    database.by_key.pop(("ann", "", "kept"))
    gone = replace(found, state=ConversationState.DELETED, conversation_key=None)
    database.conversations[found.id] = gone


def mark_a_live_one_to_be_purged(database: Database, populated: PopulatedStore) -> None:
    found = database.conversations[populated.plain.id]
    database.conversations[found.id] = replace(found, purge_at=1)


def keep_tags_of_purged(database: Database, populated: PopulatedStore) -> None:
    found = next(each for each in database.conversations.values() if each.id in database.ended)
    database.conversations[found.id] = replace(found, tags=("secret",))


def keep_key_of_deleted(database: Database, populated: PopulatedStore) -> None:
    found = next(each for each in database.conversations.values() if each.id in database.ended)
    database.conversations[found.id] = replace(found, conversation_key="mine")


def lose_conversation_of_claim(database: Database, populated: PopulatedStore) -> None:
    claim = database.claims["ann", "two"]
    database.claims["ann", "two"] = replace(claim, conversation=ConversationId("conv_" + raw_id(9)))


def keep_claim_for_ever(database: Database, populated: PopulatedStore) -> None:
    database.claims["ann", "pay"] = replace(database.claims["ann", "pay"], expires_at=None)


def lose_conversation_of_branch(database: Database, populated: PopulatedStore) -> None:
    found = database.branches[database.conversations[populated.edited.id].branch]
    other = next(each for each in database.branches.values() if is_sibling(each, found))
    gone = ConversationId("conv_" + raw_id(8))
    database.branches[other.id] = replace(other, conversation=gone)


def move_fork_to_another_scope(database: Database, populated: PopulatedStore) -> None:
    found = database.conversations[populated.forked.id]
    database.conversations[found.id] = replace(found, scope="desk")


def claim_from_another_scope(database: Database, populated: PopulatedStore) -> None:
    name = claim_name("two", Within("desk"))
    database.claims["ann", name] = replace(database.claims["ann", "two"], idempotency_key=name)


def is_sibling(branch: object, found: object) -> bool:
    """Another branch of the conversation, that none was made from and nobody waits on."""
    return (
        getattr(branch, "conversation", None) == getattr(found, "conversation", None)
        and branch is not found
        and getattr(branch, "start", 0) == getattr(branch, "length", 0)
    )


def lived_branch(number: int) -> BranchId:
    return BranchId("branch_" + raw_id(number))


ROW_DAMAGES = [
    (lose_current_branch, Rule.ORPHAN, "which is missing."),
    (take_foreign_branch, Rule.ORPHAN, "which belongs to another conversation"),
    (give_two_one_key, Rule.KEY, "The conversation_key 'plain' refers to conv_"),
    (delete_for_ever, Rule.STATE, "has no purge time; it is never purged"),
    (mark_a_live_one_to_be_purged, Rule.STATE, "The conversation is live but has a purge time"),
    (keep_tags_of_purged, Rule.STATE, "still has a title, metadata or tags"),
    (keep_key_of_deleted, Rule.KEY, "still holds the conversation_key 'mine'"),
    (lose_conversation_of_claim, Rule.KEY, "refers to a missing conversation; its retries are refused"),
    (keep_claim_for_ever, Rule.KEY, "it never expires"),
    (move_fork_to_another_scope, Rule.SCOPE, "The branch has the scope 'desk' but shows turns of conv_"),
    (claim_from_another_scope, Rule.SCOPE, "restricted to 'desk', refers to a turn in ''"),
]


async def test_check_reports_damage_to_each_kind_of_row(
    populated: PopulatedStore, database: Database
) -> None:
    await expect_found(populated, database, ROW_DAMAGES)
    lost = (lose_conversation_of_branch, Rule.ORPHAN, "The conversation of this branch is missing")
    await expect_found(populated, database, [lost], owner=None)


async def test_check_reports_a_ticket_with_an_unknown_conversation_branch_or_lease(
    populated: PopulatedStore, database: Database
) -> None:
    gate = Gate()
    held = asyncio.ensure_future(run_turn(populated.plain, "four", "Wait", gate))
    await gate.arrived()
    queued = asyncio.ensure_future(run_turn(populated.plain, "five"))
    while not database.tickets:
        await asyncio.sleep(0)
    [(id, ticket)] = database.tickets.items()
    assert await populated.ledger.check() == []
    for changes, message in [
        ({"conversation": ConversationId("conv_" + raw_id(9))}, "The conversation of this ticket is missing"),
        ({"branch": lived_branch(9)}, "which its conversation lacks"),
        ({"lease": LeaseId("lease_" + raw_id(9))}, "recovery cannot end it"),
    ]:
        database.tickets[id] = replace(ticket, **changes)
        [finding] = await populated.ledger.check()
        assert finding.rule in (Rule.ORPHAN, Rule.LANE)
        assert message in finding.message
    database.tickets[id] = ticket
    gate.release()
    await asyncio.gather(held, queued)


async def test_check_reports_a_ticket_for_an_expired_conversation(
    populated: PopulatedStore, database: Database
) -> None:
    gate = Gate()
    held = asyncio.ensure_future(run_turn(populated.plain, "four", "Wait", gate))
    await gate.arrived()
    queued = asyncio.ensure_future(run_turn(populated.plain, "five"))
    while not database.tickets:
        await asyncio.sleep(0)
    [(id, ticket)] = database.tickets.items()
    gate.release()
    await asyncio.gather(held, queued)
    database.tickets[id] = ticket
    found = database.conversations[populated.plain.id]
    database.conversations[found.id] = replace(found, state=ConversationState.EXPIRED, title=None)
    database.ended[found.id] = None
    [finding] = await populated.ledger.check()
    assert "a conversation that is expired." in finding.message
    del database.tickets[id]


async def test_check_reports_findings_up_to_its_limit(populated: PopulatedStore, database: Database) -> None:
    for name, claim in database.claims.items():
        database.claims[name] = replace(claim, conversation=ConversationId("conv_" + raw_id(9)))
    assert len(await populated.ledger.check()) == len(database.claims) > 2
    report = await MemoryStore(database).inspect(check, CheckRequest(limit=2))
    assert (len(report.findings), report.is_whole) == (2, False)


async def test_check_of_a_damaged_store_that_fails_still_reports_its_findings(
    populated: PopulatedStore,
) -> None:
    store = MemoryStore(Database())

    async def broken(whole: Inspection, request: CheckRequest) -> object:
        async def inconsistencies(limit: int) -> list[str]:
            return ["Page 7 is torn."]

        async def all_branches(after: object, limit: int) -> list[object]:
            raise OSError("cannot read page 7")

        whole.inconsistencies = inconsistencies  # type: ignore[method-assign]
        whole.all_branches = all_branches  # type: ignore[method-assign,assignment]
        return await check(whole, request)

    report = await store.inspect(broken, CheckRequest())
    messages = [finding.message for finding in report.findings]  # type: ignore[attr-defined]
    assert messages == ["Page 7 is torn.", "The check stopped early: cannot read page 7"]
    assert not report.is_whole  # type: ignore[attr-defined]


async def test_check_of_an_unreadable_store_without_damage_raises_the_error() -> None:
    async def unreachable(whole: Inspection, request: CheckRequest) -> object:
        async def all_branches(after: object, limit: int) -> list[object]:
            raise OSError("cut off")

        whole.all_branches = all_branches  # type: ignore[method-assign,assignment]
        return await check(whole, request)

    with pytest.raises(OSError, match="cut off"):
        await MemoryStore(Database()).inspect(unreachable, CheckRequest())


async def test_check_of_a_turn_stopped_in_the_queue_finds_nothing(
    populated: PopulatedStore, database: Database
) -> None:
    gate = Gate()
    held = asyncio.ensure_future(run_turn(populated.plain, "four", "Wait", gate))
    await gate.arrived()
    block = populated.plain.turn("five", idempotency_key="five")
    queued = asyncio.ensure_future(block.__aenter__())
    while not database.tickets:
        await asyncio.sleep(0)
    ended = await populated.plain.stop(block.id)
    assert ended.state is AttemptState.DISCARDED
    gate.release()
    await asyncio.gather(held, queued, return_exceptions=True)
    assert await populated.ledger.check(at_rest=True) == []


HERE = Location(owner="ann")


@pytest.fixture
def audit() -> Audit:
    return Audit(memory_whole(), 2, at_rest=False)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (StoreCorrupt("Torn."), "It cannot be read: Torn."),
        (KeyError("x"), "It cannot be read: KeyError('x')"),
    ],
)
def test_audit_records_an_unreadable_row(audit: Audit, problem: Exception, message: str) -> None:
    with audit.recording(HERE):
        raise problem
    assert [(each.rule, each.owner, each.message) for each in audit.findings] == [
        (Rule.DOCUMENT, "ann", message)
    ]


def test_audit_does_not_record_an_error_that_it_passes_over(audit: Audit) -> None:
    with audit.skipping_unreadable():
        raise StoreCorrupt
    assert audit.findings == []


def test_audit_raises_store_unavailable_and_records_no_damage(audit: Audit) -> None:
    for block in (audit.recording(HERE), audit.skipping_unreadable()):
        with pytest.raises(StoreUnavailable), block:
            raise StoreUnavailable
    with audit.skipping_unreadable(StoreUnavailable):
        raise StoreUnavailable
    assert audit.findings == []


def test_audit_beyond_its_limit_raises_enough(audit: Audit) -> None:
    audit.report(Rule.CHAIN, HERE, "One.")
    audit.report(Rule.CHAIN, HERE, "Two.")
    with pytest.raises(TooManyFindings):
        audit.report(Rule.CHAIN, HERE, "Three.")
    assert len(audit.findings) == 2


def test_audit_remembers_settled_turns_of_a_bounded_number_of_branches(audit: Audit) -> None:
    assert audit.settled_on(some_id(BranchId, 1)) is None
    for number in range(REMEMBERED + 1):
        audit.remember_settled(some_id(BranchId, number), (number,))
    assert audit.settled_on(some_id(BranchId, 0)) is None
    assert audit.settled_on(some_id(BranchId, REMEMBERED)) == (REMEMBERED,)


NOWHERE = TurnId("turn_" + raw_id(9))


def waiting(database: Database, populated: PopulatedStore) -> Attempt:
    """The failed attempt whose effects wait to be settled."""
    unsettled = shown(database, populated.waiting).unsettled
    assert unsettled is not None
    return database.attempts[unsettled]


def remove_attempt(database: Database, attempt: Attempt) -> None:
    for table in (database.attempts, database.journals, database.logs):
        table.pop(attempt.id, None)
    stored = database.stored[attempt.owner]
    database.stored[attempt.owner] = replace(stored, bytes=stored.bytes - attempt.bytes)


def change(database: Database, attempt: Attempt, **changes: object) -> None:
    database.attempts[attempt.id] = replace(attempt, **changes)


def forget_that_effects_wait(database: Database, populated: PopulatedStore) -> None:
    change_branch(database, shown(database, populated.waiting), unsettled=None)


def lose_the_attempt_that_waits(database: Database, populated: PopulatedStore) -> None:
    attempt = waiting(database, populated)
    remove_attempt(database, attempt)


def take_up_what_waits(database: Database, populated: PopulatedStore) -> None:
    attempt = waiting(database, populated)
    change(database, attempt, state=AttemptState.RESUMED, journaled=0)
    del database.journals[attempt.id]


def wait_for_nothing(database: Database, populated: PopulatedStore) -> None:
    attempt = waiting(database, populated)
    change(database, attempt, journaled=0)
    del database.journals[attempt.id]


def wait_on_another_branch(database: Database, populated: PopulatedStore) -> None:
    """Both branches are marked as waiting, and only one of them can wait."""
    change_branch(database, shown(database, populated.kept), unsettled=waiting(database, populated).id)


def lose_records(database: Database, populated: PopulatedStore) -> None:
    """A result, so that the effects are still there."""
    journal = database.journals[waiting(database, populated).id]
    del journal[max(journal)]


def tear_a_record(database: Database, populated: PopulatedStore) -> None:
    attempt = next(each for each in database.attempts.values() if each.journaled == 0)
    database.journals[attempt.id] = {0: b"{"}
    change(database, attempt, journaled=1)


def lose_the_conversation(database: Database, populated: PopulatedStore) -> None:
    attempt = set_aside(database)
    change(database, attempt, conversation=ConversationId("conv_" + raw_id(9)))


def lose_the_branch(database: Database, populated: PopulatedStore) -> None:
    change(database, set_aside(database), branch=BranchId("branch_" + raw_id(9)))


def set_aside(database: Database) -> Attempt:
    """One without effects."""
    return next(
        each
        for each in database.attempts.values()
        if each.state is AttemptState.FAILED and not each.journaled
    )


def commit_what_failed(database: Database, populated: PopulatedStore) -> None:
    failed = waiting(database, populated)
    taken = turn_at(database, populated.plain, 2)
    database.attempts[taken] = replace(failed, id=taken, journaled=0)


def keep_the_row_of_a_committed_one(database: Database, populated: PopulatedStore) -> None:
    taken = turn_at(database, populated.plain, 2)
    database.attempts[taken] = replace(
        waiting(database, populated), id=taken, journaled=0, state=AttemptState.COMPLETED
    )


def commit_what_is_nowhere(database: Database, populated: PopulatedStore) -> None:
    database.attempts[NOWHERE] = replace(
        waiting(database, populated), id=NOWHERE, journaled=0, state=AttemptState.KEPT
    )


def settle_what_is_nowhere(database: Database, populated: PopulatedStore) -> None:
    database.attempts[NOWHERE] = replace(
        waiting(database, populated), id=NOWHERE, journaled=0, state=AttemptState.SETTLED
    )


def hold_a_lane_by_nobody(database: Database, populated: PopulatedStore) -> None:
    change_branch(database, shown(database, populated.plain), running=NOWHERE)


def hold_a_lane_by_what_failed(database: Database, populated: PopulatedStore) -> None:
    change_branch(database, shown(database, populated.waiting), running=waiting(database, populated).id)


LANE_DAMAGES = [
    (forget_that_effects_wait, Rule.EFFECT, "has tool effects but does not wait to be settled"),
    (lose_the_attempt_that_waits, Rule.EFFECT, "which is missing; its tool results are lost"),
    (take_up_what_waits, Rule.EFFECT, "which is resumed; the model would see them twice"),
    (wait_for_nothing, Rule.EFFECT, "whose journal has none"),
    (wait_on_another_branch, Rule.EFFECT, "the model would see them on the wrong branch"),
    (lose_records, Rule.EFFECT, "steps, but its journal has"),
    (tear_a_record, Rule.DOCUMENT, "Its journal cannot be read"),
    (lose_the_conversation, Rule.ORPHAN, "The conversation of this attempt is missing"),
    (lose_the_branch, Rule.ORPHAN, "which its conversation lacks"),
    (commit_what_failed, Rule.ATTEMPT, "this attempt as completed, but its state is failed"),
    (keep_the_row_of_a_committed_one, Rule.ATTEMPT, "but its state is completed"),
    (commit_what_is_nowhere, Rule.ATTEMPT, "The attempt is kept but not in the history; its answer is lost"),
    (settle_what_is_nowhere, Rule.EFFECT, "The attempt is settled but not in the history"),
    (hold_a_lane_by_nobody, Rule.LANE, "which is missing; it is never released"),
    (hold_a_lane_by_what_failed, Rule.LANE, "which is failed; it is never released"),
]


async def test_check_reports_damage_to_lanes_and_effects(
    populated: PopulatedStore, database: Database
) -> None:
    await fail(populated.plain, "one that fails without effects")
    await expect_found(populated, database, LANE_DAMAGES)


@pytest.fixture
async def running(populated: PopulatedStore, database: Database) -> Attempt:
    """An attempt that runs, as a process left it."""
    gate = Gate()
    held = asyncio.ensure_future(run_turn(populated.plain, "four", Tool("look", gate=gate)))
    await gate.arrived()
    branch = shown(database, populated.plain)
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


async def test_check_reports_damage_around_a_running_attempt(
    populated: PopulatedStore, database: Database, running: Attempt
) -> None:
    [note] = await populated.ledger.check(at_rest=True)
    assert (note.rule, note.turn) == (Rule.NOT_AT_REST, running.id)
    lane = shown(database, populated.plain)
    with repaired(database):
        change_branch(database, lane, fence=lane.fence + 1)  # it may be above that of its holder
        assert await populated.ledger.check() == []

    def let_go(database: Database, populated: PopulatedStore) -> None:
        change_branch(database, lane, running=None)

    def run_beside_it(database: Database, populated: PopulatedStore) -> None:
        database.attempts[NOWHERE] = replace(running, id=NOWHERE, journaled=0)

    def lose_its_lease(database: Database, populated: PopulatedStore) -> None:
        del database.leases[running.lease]

    def lower_the_fence(database: Database, populated: PopulatedStore) -> None:
        change_branch(database, lane, fence=lane.fence - 1)

    def hold_another_lane(database: Database, populated: PopulatedStore) -> None:
        change_branch(database, shown(database, populated.kept), running=running.id)

    def end_its_conversation(database: Database, populated: PopulatedStore) -> None:
        found = database.conversations[populated.plain.id]
        database.conversations[found.id] = replace(found, state=ConversationState.EXPIRED, title=None)
        database.ended[found.id] = None

    def leave_it(database: Database, populated: PopulatedStore) -> None:
        other = replace(lane, id=BranchId("branch_" + raw_id(9)), running=None, head=None, length=0, bytes=0)
        database.branches[other.id] = replace(other, settled=0, pending=(), instructed=0, preview="")
        found = database.conversations[populated.plain.id]
        database.conversations[found.id] = replace(found, branch=other.id)

    def show_a_side_branch(database: Database, populated: PopulatedStore) -> None:
        change_branch(database, lane, used_at=1)

    damages = [
        (leave_it, Rule.LANE, "although the conversation has left this branch"),
        (show_a_side_branch, Rule.LANE, "shows a side branch; retention would remove"),
        (let_go, Rule.LANE, "is running, but no attempt holds the lane"),
        (run_beside_it, Rule.LANE, f"but {running.id} holds the lane"),
        (lose_its_lease, Rule.LANE, "recovery cannot end it"),
        (lower_the_fence, Rule.LANE, "of the branch; it is never released"),
        (hold_another_lane, Rule.LANE, f"which runs on {running.branch}"),
        (end_its_conversation, Rule.LANE, "although its conversation has ended"),
    ]
    await expect_found(populated, database, damages)


async def test_check_of_unsettled_effects_in_a_purged_conversation_finds_nothing(
    populated: PopulatedStore, database: Database
) -> None:
    attempt = waiting(database, populated)
    await populated.waiting.delete()
    assert await populated.ledger.check() == []
    await populated.waiting.delete(purge=True)
    assert await populated.ledger.check() == []
    remove_attempt(database, attempt)
    assert await populated.ledger.check() == []


async def test_check_reports_lost_effects_of_a_restorable_conversation(
    populated: PopulatedStore, database: Database
) -> None:
    attempt = waiting(database, populated)
    await populated.waiting.delete()
    assert await populated.ledger.check() == []
    remove_attempt(database, attempt)
    [finding] = await populated.ledger.check()
    assert "its tool results are lost" in finding.message


async def test_check_reports_a_turn_that_runs_in_a_deleted_conversation(
    populated: PopulatedStore, database: Database
) -> None:
    gate = Gate()
    held = asyncio.ensure_future(run_turn(populated.plain, "four", "Wait", gate))
    await gate.arrived()
    found = database.conversations[populated.plain.id]
    gone = replace(found, state=ConversationState.DELETED, purge_at=1, conversation_key=None)
    database.by_key.pop(("ann", "", "plain"))
    database.conversations[found.id] = gone
    [finding] = await populated.ledger.check()
    assert "although its conversation has ended" in finding.message
    held.cancel()
    await asyncio.wait((held,))


ALL = tuple(TokenScope)


async def family(populated: PopulatedStore) -> tuple[Token, Token]:
    """A token, and one that it made."""
    tokens = Host(populated.ledger).tokens
    parent, _ = await tokens.create(owner="ann", scopes=ALL, chat_scope="shop", models=["a"])
    child, _ = await tokens.create(scopes=ALL, parent=parent.id)
    return parent, child


def change_token(database: Database, id: TokenId, **changes: Any) -> None:
    database.tokens[id] = replace(database.tokens[id], **changes)


async def test_check_of_tokens_in_every_state_finds_nothing(populated: PopulatedStore) -> None:
    parent, child = await family(populated)
    assert await populated.ledger.check() == []
    await Host(populated.ledger).tokens.revoke(child.id)
    assert await populated.ledger.check() == []
    await Host(populated.ledger).tokens.revoke(parent.id)
    await Host(populated.ledger).tokens.create(scopes=ALL, lifetime=1)
    assert await populated.ledger.check() == []


async def test_check_reports_damage_to_tokens_and_share_links(
    populated: PopulatedStore, database: Database
) -> None:
    parent, child = await family(populated)
    share, code = await Host(populated.ledger).shares.create(scope="shop", owner="ann", visitor_lifetime=None)
    guest = (await Host(populated.ledger).shares.exchange(code, "n" * 22)).token

    def forget(token: Token) -> None:
        del database.tokens[token.id], database.by_digest[token.digest]

    beyond = f"{child.id} grants more than {parent.id}, which issued it: other"
    damages = [
        (lambda: change_token(database, child.id, models=()), f"{beyond} models."),
        (lambda: change_token(database, child.id, chat_scope=""), f"{beyond} conversations."),
        (lambda: forget(parent), f"{parent.id}, which is missing"),
        (
            lambda: database.by_digest.pop(child.digest),
            f"{child.id} cannot be found by its digest; it authorizes no request.",
        ),
        (
            lambda: change_token(database, child.id, revoked_at=1),
            f"{child.id} is revoked, but the admission version of its owner is unchanged; it may work.",
        ),
        (lambda: database.shares.pop(share.id), f"{guest.id} was issued by {share.id}, which is missing"),
        (
            lambda: change_token(database, guest.id, chat_scope="desk"),
            f"{guest.id} grants other conversations than {share.id}, which issued it.",
        ),
    ]
    for damage, message in damages:
        with repaired(database):
            damage()
            [finding] = await populated.ledger.check()
        assert finding.rule is Rule.TOKEN
        assert message in finding.message
    assert await populated.ledger.check() == []


async def test_check_of_an_expired_token_without_its_parent_row_finds_nothing(
    populated: PopulatedStore, database: Database
) -> None:
    parent, child = await family(populated)
    change_token(database, child.id, expires_at=1)
    del database.tokens[parent.id], database.by_digest[parent.digest]
    assert await populated.ledger.check() == []


async def test_check_reports_a_valid_token_of_a_revoked_parent_or_link(
    populated: PopulatedStore, database: Database
) -> None:
    parent, child = await family(populated)
    share, code = await Host(populated.ledger).shares.create(scope="shop", owner="ann", visitor_lifetime=None)
    guest = (await Host(populated.ledger).shares.exchange(code, "n" * 22)).token
    await Host(populated.ledger).tokens.revoke(parent.id)
    await Host(populated.ledger).shares.revoke(share.id)
    assert await populated.ledger.check() == []
    for token, message in ((child, f"issued by {parent.id}"), (guest, f"issued by {share.id}")):
        with repaired(database):
            change_token(database, token.id, revoked_at=None)
            [finding] = await populated.ledger.check()
        assert (finding.rule, finding.owner) == (Rule.TOKEN, token.owner)
        assert finding.message == f"{token.id} was {message}, which is revoked; the token still works."
