"""The check finds nothing in a sound store and reports damage to rows, lanes, attempts and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.populated_store import (
    Damages,
    PopulatedStore,
    change_branch,
    change_conversation,
    change_shown,
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
from turnledger.chat import Chat
from turnledger.engine.attempt.idempotency import claim_name
from turnledger.engine.check.audit import REMEMBERED, Audit, Location, TooManyFindings
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.ports import Inspection, Store
from turnledger.errors import StoreCorrupt, StoreUnavailable
from turnledger.hosting import Host, TokenScope
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.conversation import Branch, ConversationState, Ticket, Within
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


def delete_for_ever(database: Database, populated: PopulatedStore) -> None:
    database.by_key.pop(("ann", "", "kept"))
    change_conversation(database, populated.kept, state=ConversationState.DELETED, conversation_key=None)


def change_ended(database: Database, **changes: Any) -> None:
    found = next(each for each in database.conversations.values() if each.id in database.ended)
    database.conversations[found.id] = replace(found, **changes)


def change_claim(database: Database, name: str, **changes: Any) -> None:
    database.claims["ann", name] = replace(database.claims["ann", name], **changes)


def lose_conversation_of_branch(database: Database, populated: PopulatedStore) -> None:
    found = database.branches[database.conversations[populated.edited.id].branch]
    other = next(each for each in database.branches.values() if is_sibling(each, found))
    gone = ConversationId("conv_" + raw_id(8))
    database.branches[other.id] = replace(other, conversation=gone)


def claim_from_another_scope(database: Database, populated: PopulatedStore) -> None:
    name = claim_name("two", Within("desk"))
    database.claims["ann", name] = replace(database.claims["ann", "two"], idempotency_key=name)


def is_sibling(branch: Branch, found: Branch) -> bool:
    """Another branch of the conversation, that none was made from and nobody waits on."""
    is_other = branch is not found and branch.conversation == found.conversation
    return is_other and branch.start == branch.length


def lived_branch(number: int) -> BranchId:
    return BranchId("branch_" + raw_id(number))


NO_CHAT = ConversationId("conv_" + raw_id(9))
ROW_DAMAGES: Damages = {
    Rule.ORPHAN: {
        "which is missing.": lambda rows, store: change_conversation(
            rows, store.plain, branch=lived_branch(7)
        ),
        "which belongs to another conversation": lambda rows, store: change_conversation(
            rows, store.plain, branch=shown(rows, store.kept).id
        ),
    },
    Rule.KEY: {
        "The conversation_key 'plain' refers to conv_": lambda rows, store: change_conversation(
            rows, store.forked, conversation_key="plain"
        ),
        "still holds the conversation_key 'mine'": lambda rows, _: change_ended(
            rows, conversation_key="mine"
        ),
        "refers to a missing conversation; its retries are refused": lambda rows, _: change_claim(
            rows, "two", conversation=NO_CHAT
        ),
        "it never expires": lambda rows, _: change_claim(rows, "pay", expires_at=None),
    },
    Rule.STATE: {
        "has no purge time; it is never purged": delete_for_ever,
        "The conversation is live but has a purge time": lambda rows, store: change_conversation(
            rows, store.plain, purge_at=1
        ),
        "still has a title, metadata or tags": lambda rows, _: change_ended(rows, tags=("secret",)),
    },
    Rule.SCOPE: {
        "The branch has the scope 'desk' but shows turns of conv_": lambda rows, store: change_conversation(
            rows, store.forked, scope="desk"
        ),
        "restricted to 'desk', refers to a turn in ''": claim_from_another_scope,
    },
}


async def test_check_reports_damage_to_each_kind_of_row(
    populated: PopulatedStore, database: Database
) -> None:
    await expect_found(populated, database, ROW_DAMAGES)
    lost = {"The conversation of this branch is missing": lose_conversation_of_branch}
    await expect_found(populated, database, {Rule.ORPHAN: lost}, owner=None)


@asynccontextmanager
async def queued_turn(populated: PopulatedStore, database: Database) -> AsyncIterator[Ticket]:
    """Hold a turn open during the block, and queue another one behind it."""
    gate = Gate()
    held = asyncio.ensure_future(run_turn(populated.plain, "four", "Wait", gate))
    await gate.arrived()
    queued = asyncio.ensure_future(run_turn(populated.plain, "five"))
    while not database.tickets:
        await asyncio.sleep(0)
    [ticket] = database.tickets.values()
    yield ticket
    database.tickets[ticket.attempt] = ticket
    gate.release()
    await asyncio.gather(held, queued)


async def test_check_reports_a_ticket_with_an_unknown_conversation_branch_or_lease(
    populated: PopulatedStore, database: Database
) -> None:
    async with queued_turn(populated, database) as ticket:
        assert await populated.ledger.check() == []
        for changes, message in [
            ({"conversation": NO_CHAT}, "The conversation of this ticket is missing"),
            ({"branch": lived_branch(9)}, "which its conversation lacks"),
            ({"lease": LeaseId("lease_" + raw_id(9))}, "recovery cannot end it"),
        ]:
            database.tickets[ticket.attempt] = replace(ticket, **changes)
            [finding] = await populated.ledger.check()
            assert finding.rule in (Rule.ORPHAN, Rule.LANE)
            assert message in finding.message


def expire(database: Database, chat: Chat) -> None:
    change_conversation(database, chat, state=ConversationState.EXPIRED, title=None)
    database.ended[chat.id] = None


async def test_check_reports_a_ticket_for_an_expired_conversation(
    populated: PopulatedStore, database: Database
) -> None:
    async with queued_turn(populated, database) as ticket:
        pass
    database.tickets[ticket.attempt] = ticket
    expire(database, populated.plain)
    [finding] = await populated.ledger.check()
    assert "a conversation that is expired." in finding.message
    del database.tickets[ticket.attempt]


async def test_check_reports_findings_up_to_its_limit(populated: PopulatedStore, database: Database) -> None:
    for name, claim in database.claims.items():
        database.claims[name] = replace(claim, conversation=NO_CHAT)
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


def change_waiting(database: Database, populated: PopulatedStore, **changes: object) -> None:
    """Take its journal from the attempt that waits."""
    attempt = waiting(database, populated)
    change(database, attempt, journaled=0, **changes)
    del database.journals[attempt.id]


def add_attempt(database: Database, populated: PopulatedStore, id: TurnId, **changes: Any) -> None:
    database.attempts[id] = replace(waiting(database, populated), id=id, journaled=0, **changes)


def lose_records(database: Database, populated: PopulatedStore) -> None:
    """A result, so that the effects are still there."""
    journal = database.journals[waiting(database, populated).id]
    del journal[max(journal)]


def tear_a_record(database: Database, populated: PopulatedStore) -> None:
    attempt = next(each for each in database.attempts.values() if each.journaled == 0)
    database.journals[attempt.id] = {0: b"{"}
    change(database, attempt, journaled=1)


def set_aside(database: Database) -> Attempt:
    """One without effects."""
    return next(
        each
        for each in database.attempts.values()
        if each.state is AttemptState.FAILED and not each.journaled
    )


LANE_DAMAGES: Damages = {
    Rule.EFFECT: {
        "has tool effects but does not wait to be settled": lambda rows, store: change_shown(
            rows, store.waiting, unsettled=None
        ),
        "which is missing; its tool results are lost": lambda rows, store: remove_attempt(
            rows, waiting(rows, store)
        ),
        "which is resumed; the model would see them twice": lambda rows, store: change_waiting(
            rows, store, state=AttemptState.RESUMED
        ),
        "whose journal has none": change_waiting,
        "the model would see them on the wrong branch": lambda rows, store: change_shown(
            rows, store.kept, unsettled=waiting(rows, store).id
        ),
        "steps, but its journal has": lose_records,
        "The attempt is settled but not in the history": lambda rows, store: add_attempt(
            rows, store, NOWHERE, state=AttemptState.SETTLED
        ),
    },
    Rule.DOCUMENT: {
        "Its journal cannot be read": tear_a_record,
    },
    Rule.ORPHAN: {
        "The conversation of this attempt is missing": lambda rows, _: change(
            rows, set_aside(rows), conversation=NO_CHAT
        ),
        "which its conversation lacks": lambda rows, _: change(rows, set_aside(rows), branch=lived_branch(9)),
    },
    Rule.ATTEMPT: {
        "this attempt as completed, but its state is failed": lambda rows, store: add_attempt(
            rows, store, turn_at(rows, store.plain, 2)
        ),
        "but its state is completed": lambda rows, store: add_attempt(
            rows, store, turn_at(rows, store.plain, 2), state=AttemptState.COMPLETED
        ),
        "The attempt is kept but not in the history; its answer is lost": lambda rows, store: add_attempt(
            rows, store, NOWHERE, state=AttemptState.KEPT
        ),
    },
    Rule.LANE: {
        "which is missing; it is never released": lambda rows, store: change_shown(
            rows, store.plain, running=NOWHERE
        ),
        "which is failed; it is never released": lambda rows, store: change_shown(
            rows, store.waiting, running=waiting(rows, store).id
        ),
    },
}


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

    def run_beside_it(database: Database, populated: PopulatedStore) -> None:
        database.attempts[NOWHERE] = replace(running, id=NOWHERE, journaled=0)

    def leave_it(database: Database, populated: PopulatedStore) -> None:
        other = replace(lane, id=lived_branch(9), running=None, head=None, length=0, bytes=0)
        database.branches[other.id] = replace(other, settled=0, pending=(), instructed=0, preview="")
        change_conversation(database, populated.plain, branch=other.id)

    damages: Damages = {
        Rule.LANE: {
            "although the conversation has left this branch": leave_it,
            "shows a side branch; retention would remove": lambda rows, _: change_branch(
                rows, lane, used_at=1
            ),
            "is running, but no attempt holds the lane": lambda rows, _: change_branch(
                rows, lane, running=None
            ),
            f"but {running.id} holds the lane": run_beside_it,
            "recovery cannot end it": lambda rows, _: rows.leases.pop(running.lease),
            "of the branch; it is never released": lambda rows, _: change_branch(
                rows, lane, fence=lane.fence - 1
            ),
            f"which runs on {running.branch}": lambda rows, store: change_shown(
                rows, store.kept, running=running.id
            ),
            "although its conversation has ended": lambda rows, store: expire(rows, store.plain),
        },
    }
    await expect_found(populated, database, damages)


async def test_check_wants_the_effects_of_a_deleted_conversation_until_it_is_purged(
    populated: PopulatedStore, database: Database
) -> None:
    attempt = waiting(database, populated)
    await populated.waiting.delete()
    assert await populated.ledger.check() == []
    with repaired(database):
        remove_attempt(database, attempt)
        [finding] = await populated.ledger.check()
        assert "its tool results are lost" in finding.message
    await populated.waiting.delete(purge=True)
    assert await populated.ledger.check() == []
    remove_attempt(database, attempt)
    assert await populated.ledger.check() == []


async def test_check_reports_a_turn_that_runs_in_a_deleted_conversation(
    populated: PopulatedStore, database: Database
) -> None:
    gate = Gate()
    held = asyncio.ensure_future(run_turn(populated.plain, "four", "Wait", gate))
    await gate.arrived()
    database.by_key.pop(("ann", "", "plain"))
    ended = {"state": ConversationState.DELETED, "purge_at": 1, "conversation_key": None}
    change_conversation(database, populated.plain, **ended)
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


async def visited_link(populated: PopulatedStore) -> tuple[Share, Token]:
    """A share link, and the token of its visitor."""
    shares = Host(populated.ledger).shares
    share, code = await shares.create(scope="shop", owner="ann", visitor_lifetime=None)
    return share, (await shares.exchange(code, "n" * 22)).token


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
    share, guest = await visited_link(populated)

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
    share, guest = await visited_link(populated)
    await Host(populated.ledger).tokens.revoke(parent.id)
    await Host(populated.ledger).shares.revoke(share.id)
    assert await populated.ledger.check() == []
    for token, message in ((child, f"issued by {parent.id}"), (guest, f"issued by {share.id}")):
        with repaired(database):
            change_token(database, token.id, revoked_at=None)
            [finding] = await populated.ledger.check()
        assert (finding.rule, finding.owner) == (Rule.TOKEN, token.owner)
        assert finding.message == f"{token.id} was {message}, which is revoked; the token still works."
