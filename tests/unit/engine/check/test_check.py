"""The check: clean where nothing is wrong; each kind of damage to a row is found and named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.engine.lived_in import Lived, findings, live_in, say
from tests.unit.model.shapes import some_id
from turnledger import Ledger, Rule
from turnledger.engine.attempt.idempotency import claimed_as
from turnledger.engine.check.audit import REMEMBERED, Audit, Enough, Location
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.ports import Store, Tables
from turnledger.errors import StoreCorrupt, StoreUnavailable
from turnledger.model.conversation import ConversationState, Within
from turnledger.model.ids import BranchId, ConversationId, LeaseId
from turnledger.model.turn import AttemptState
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.gates import Gate

Damage = Callable[[Database, Lived], object]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "chats.db")
    yield made
    await made.close()


async def test_nothing_is_wrong_with_a_new_store(store: Store) -> None:
    report = await store.read(check, CheckRequest(at_rest=True))
    assert (report.findings, report.conversations, report.is_whole) == ([], 0, True)


async def test_nothing_is_wrong_whatever_has_happened(store: Store) -> None:
    lived = await live_in(store)
    assert await lived.ledger.check(at_rest=True) == []
    report = await store.read(check, CheckRequest())
    assert (report.conversations, report.branches, report.is_whole) == (8, 12, True)
    assert report.turns >= 18
    for purge in (False, True):
        for chat in (lived.edited, lived.settled, lived.waiting, lived.kept):
            await chat.delete(purge=purge)
        assert await lived.ledger.check(at_rest=True) == []


async def test_what_is_at_work_is_no_damage_and_told_only_where_there_should_be_rest(store: Store) -> None:
    ledger = await Ledger.over(store)
    chat = await ledger.conversation()
    gate = Gate()
    held = asyncio.ensure_future(say(chat, "one", "Wait", gate))
    await gate.arrived()
    queued = asyncio.ensure_future(say(chat, "two"))
    while len(await findings(store, at_rest=True)) < 2:
        await asyncio.sleep(0)
    assert await findings(store) == []
    told = await findings(store, at_rest=True)
    assert [finding.rule for finding in told] == [Rule.NOT_AT_REST] * 2
    assert not any(finding.is_damage for finding in told)
    gate.release()
    await asyncio.gather(held, queued)
    assert await findings(store, at_rest=True) == []


async def test_a_line_of_several_pages_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("audit", "check", "lines"):
        monkeypatch.setattr(f"turnledger.engine.check.{module}.PAGE", 2)
    store = MemoryStore()
    lived = await live_in(store)
    chats = [await lived.ledger.conversation(owner=f"{count}") for count in range(5)]
    for count in range(9):
        await asyncio.gather(*(say(chat, f"q{count}", idempotency_key=f"{count}") for chat in chats))
    report = await store.read(check, CheckRequest())
    assert (report.findings, report.conversations) == ([], 13)
    assert report.turns >= 63
    await lived.ledger.close()


def lose_current_branch(database: Database, lived: Lived) -> None:
    found = database.conversations[lived.plain.id]
    database.conversations[found.id] = replace(found, branch=lived_branch(7))


def take_foreign_branch(database: Database, lived: Lived) -> None:
    found, other = database.conversations[lived.plain.id], database.conversations[lived.kept.id]
    database.conversations[found.id] = replace(found, branch=other.branch)


def give_two_one_key(database: Database, lived: Lived) -> None:
    found = database.conversations[lived.forked.id]
    database.conversations[found.id] = replace(found, conversation_key="plain")


def delete_for_ever(database: Database, lived: Lived) -> None:
    found = database.conversations[lived.kept.id]
    database.by_key.pop(("ann", "", "kept"))
    gone = replace(found, state=ConversationState.DELETED, conversation_key=None)
    database.conversations[found.id] = gone


def mark_a_live_one_to_be_purged(database: Database, lived: Lived) -> None:
    found = database.conversations[lived.plain.id]
    database.conversations[found.id] = replace(found, purge_at=1)


def keep_what_was_said_about_a_purged_one(database: Database, lived: Lived) -> None:
    found = next(each for each in database.conversations.values() if each.id in database.ended)
    database.conversations[found.id] = replace(found, tags=("secret",))


def keep_key_of_deleted(database: Database, lived: Lived) -> None:
    found = next(each for each in database.conversations.values() if each.id in database.ended)
    database.conversations[found.id] = replace(found, conversation_key="mine")


def lose_conversation_of_claim(database: Database, lived: Lived) -> None:
    claim = database.claims["ann", "two"]
    database.claims["ann", "two"] = replace(claim, conversation=ConversationId("conv_" + raw_id(9)))


def keep_claim_for_ever(database: Database, lived: Lived) -> None:
    database.claims["ann", "pay"] = replace(database.claims["ann", "pay"], expires_at=None)


def lose_conversation_of_branch(database: Database, lived: Lived) -> None:
    found = database.branches[database.conversations[lived.edited.id].branch]
    other = next(each for each in database.branches.values() if is_sibling(each, found))
    gone = ConversationId("conv_" + raw_id(8))
    database.branches[other.id] = replace(other, conversation=gone)


def move_fork_to_another_scope(database: Database, lived: Lived) -> None:
    found = database.conversations[lived.forked.id]
    database.conversations[found.id] = replace(found, scope="desk")


def claim_from_another_scope(database: Database, lived: Lived) -> None:
    name = claimed_as("two", Within("desk"))
    database.claims["ann", name] = replace(database.claims["ann", "two"], idempotency_key=name)


def is_sibling(branch: object, found: object) -> bool:
    """Another branch of the conversation, that none was made from and nobody waits on."""
    return (
        getattr(branch, "conversation", None) == getattr(found, "conversation", None)
        and branch is not found
        and getattr(branch, "start", 0) == getattr(branch, "length", 0)
    )


def raw_id(number: int) -> str:
    return f"{number:012x}70008{number:015x}"


def lived_branch(number: int) -> BranchId:
    return BranchId("branch_" + raw_id(number))


@pytest.mark.parametrize(
    ("damage", "rule", "said"),
    [
        (lose_current_branch, Rule.ORPHAN, "which is not there: it cannot be continued"),
        (take_foreign_branch, Rule.ORPHAN, "which is not one of its own"),
        (give_two_one_key, Rule.KEY, "Its conversation_key 'plain' names conv_"),
        (delete_for_ever, Rule.STATE, "nothing says until when: it is never purged"),
        (mark_a_live_one_to_be_purged, Rule.STATE, "It is live, but is to be purged"),
        (keep_what_was_said_about_a_purged_one, Rule.STATE, "what was said about it is still there"),
        (keep_key_of_deleted, Rule.KEY, "It is deleted, but keeps 'mine'"),
        (lose_conversation_of_claim, Rule.KEY, "a conversation that is not there: its retries are refused"),
        (keep_claim_for_ever, Rule.KEY, "it is never forgotten"),
        (move_fork_to_another_scope, Rule.SCOPE, "It is of the scope 'desk' and shows turns of conv_"),
        (claim_from_another_scope, Rule.SCOPE, "of who sees 'desk' only stands for a turn in ''"),
        (lose_conversation_of_branch, Rule.ORPHAN, "Its conversation is not there: nobody can reach it"),
    ],
)
async def test_damage_is_seen_and_named(
    lived: Lived, database: Database, damage: Damage, rule: Rule, said: str
) -> None:
    assert await lived.ledger.check() == []
    damage(database, lived)
    [finding] = await lived.ledger.check()
    assert finding.rule is rule
    assert said in finding.message
    assert finding.owner == "ann" or "nobody can reach it" in said


async def test_a_ticket_must_wait_for_something_and_be_found(lived: Lived, database: Database) -> None:
    gate = Gate()
    held = asyncio.ensure_future(say(lived.plain, "four", "Wait", gate))
    await gate.arrived()
    queued = asyncio.ensure_future(say(lived.plain, "five"))
    while not database.tickets:
        await asyncio.sleep(0)
    [(id, ticket)] = database.tickets.items()
    assert await lived.ledger.check() == []
    for changes, said in [
        ({"conversation": ConversationId("conv_" + raw_id(9))}, "a conversation that is not there"),
        ({"branch": lived_branch(9)}, "which its conversation does not have"),
        ({"lease": LeaseId("lease_" + raw_id(9))}, "nobody finds it"),
    ]:
        database.tickets[id] = replace(ticket, **changes)
        [finding] = await lived.ledger.check()
        assert finding.rule in (Rule.ORPHAN, Rule.LANE)
        assert said in finding.message
    database.tickets[id] = ticket
    gate.release()
    await asyncio.gather(held, queued)


async def test_a_ticket_for_a_conversation_that_has_ended_waits_in_vain(
    lived: Lived, database: Database
) -> None:
    gate = Gate()
    held = asyncio.ensure_future(say(lived.plain, "four", "Wait", gate))
    await gate.arrived()
    queued = asyncio.ensure_future(say(lived.plain, "five"))
    while not database.tickets:
        await asyncio.sleep(0)
    [(id, ticket)] = database.tickets.items()
    gate.release()
    await asyncio.gather(held, queued)
    database.tickets[id] = ticket
    found = database.conversations[lived.plain.id]
    database.conversations[found.id] = replace(found, state=ConversationState.EXPIRED, title=None)
    database.ended[found.id] = None
    [finding] = await lived.ledger.check()
    assert "a conversation that is expired: in vain" in finding.message
    del database.tickets[id]


async def test_only_so_many_findings_are_reported(lived: Lived, database: Database) -> None:
    for name, claim in database.claims.items():
        database.claims[name] = replace(claim, conversation=ConversationId("conv_" + raw_id(9)))
    assert len(await lived.ledger.check()) == len(database.claims) > 2
    report = await MemoryStore(database).read(check, CheckRequest(limit=2))
    assert (len(report.findings), report.is_whole) == (2, False)


async def test_what_a_damaged_store_said_of_itself_is_told_even_if_it_breaks_down(lived: Lived) -> None:
    store = MemoryStore(Database())

    async def broken(tables: Tables, request: CheckRequest) -> object:
        async def oddities(limit: int) -> list[str]:
            return ["Page 7 is torn."]

        async def all_branches(after: object, limit: int) -> list[object]:
            raise OSError("cannot read page 7")

        tables.oddities = oddities  # type: ignore[method-assign]
        tables.all_branches = all_branches  # type: ignore[method-assign,assignment]
        return await check(tables, request)

    report = await store.read(broken, CheckRequest())
    said = [finding.message for finding in report.findings]  # type: ignore[attr-defined]
    assert said == ["Page 7 is torn.", "The check could not go on: cannot read page 7"]
    assert not report.is_whole  # type: ignore[attr-defined]


async def test_a_store_that_only_fails_is_not_called_damaged() -> None:
    async def unreachable(tables: Tables, request: CheckRequest) -> object:
        async def all_branches(after: object, limit: int) -> list[object]:
            raise OSError("cut off")

        tables.all_branches = all_branches  # type: ignore[method-assign,assignment]
        return await check(tables, request)

    with pytest.raises(OSError, match="cut off"):
        await MemoryStore(Database()).read(unreachable, CheckRequest())


async def test_a_turn_that_was_stopped_while_it_waited_is_no_damage(lived: Lived, database: Database) -> None:
    gate = Gate()
    held = asyncio.ensure_future(say(lived.plain, "four", "Wait", gate))
    await gate.arrived()
    block = lived.plain.turn("five", idempotency_key="five")
    queued = asyncio.ensure_future(block.__aenter__())
    while not database.tickets:
        await asyncio.sleep(0)
    ended = await lived.plain.stop(block.id)
    assert ended is not None
    assert ended.state is AttemptState.DISCARDED
    gate.release()
    await asyncio.gather(held, queued, return_exceptions=True)
    assert await lived.ledger.check(at_rest=True) == []


HERE = Location(owner="ann")


@pytest.fixture
def audit() -> Audit:
    return Audit(MemoryTables(Database()), 2, at_rest=False)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (StoreCorrupt("Torn."), "It cannot be read: Torn."),
        (KeyError("x"), "It cannot be read: KeyError('x')"),
    ],
)
def test_what_cannot_be_read_is_noted(audit: Audit, problem: Exception, said: str) -> None:
    with audit.noting(HERE):
        raise problem
    assert [(each.rule, each.owner, each.message) for each in audit.findings] == [
        (Rule.DOCUMENT, "ann", said)
    ]


def test_what_is_passed_over_is_not_noted(audit: Audit) -> None:
    with audit.passing_over():
        raise StoreCorrupt
    assert audit.findings == []


def test_a_store_out_of_reach_is_no_damage(audit: Audit) -> None:
    for block in (audit.noting(HERE), audit.passing_over()):
        with pytest.raises(StoreUnavailable), block:
            raise StoreUnavailable
    with audit.passing_over(StoreUnavailable):
        raise StoreUnavailable
    assert audit.findings == []


def test_there_can_be_enough(audit: Audit) -> None:
    audit.found(Rule.CHAIN, HERE, "One.")
    audit.found(Rule.CHAIN, HERE, "Two.")
    with pytest.raises(Enough):
        audit.found(Rule.CHAIN, HERE, "Three.")
    assert len(audit.findings) == 2


def test_settled_turns_are_remembered_of_so_many_branches(audit: Audit) -> None:
    assert audit.settled_on(some_id(BranchId, 1)) is None
    for number in range(REMEMBERED + 1):
        audit.remember_settled(some_id(BranchId, number), (number,))
    assert audit.settled_on(some_id(BranchId, 0)) is None
    assert audit.settled_on(some_id(BranchId, REMEMBERED)) == (REMEMBERED,)
