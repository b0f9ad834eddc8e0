"""The tables: rows survive storage, lookups are per owner, and secrets are not stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from struct import pack
from typing import Any
from zlib import crc32

import apsw
import pytest
from msgspec.structs import replace

from tests.unit.engine.populated_store import run_turn
from tests.unit.model.shapes import some_id
from tests.unit.stores.sqlite.operations import ids
from turnledger import Ledger
from turnledger.engine.ports import Tables
from turnledger.engine.tables.lanes import HeldTicket
from turnledger.errors import StoreCorrupt, StoreError
from turnledger.hosting import Host, TokenScope
from turnledger.model.catalogue import ChatFilter, ListPosition
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
    Lease,
    Stretch,
    Ticket,
)
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.turn import Attempt, AttemptState, Failure, OnFailure, OnStop, Turn, TurnKind
from turnledger.stores.row_codec import _NUMBER_OF_CHANGE, CHANGE_KINDS
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.tables.records import (
    START,
    line_of,
    pack_line,
    position_of,
)
from turnledger.stores.sqlite.tables.tables import LONG_INPUT
from turnledger.types import Rule

CALL = Item(b'{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}')


class Proxy:
    """Calls each method of the tables as a transaction of its own: those of an owner, or of all (None)."""

    def __init__(self, store: SqliteStore, owner: str | None = "ada") -> None:
        self._store = store
        self._owner = owner

    def of(self, owner: str | None) -> Proxy:
        return Proxy(self._store, owner)

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            async def operation(rows: Any, _: None) -> Any:
                return await getattr(rows, name)(*arguments)

            if self._owner is None:
                return await self._store.transact_whole(operation, None)
            return await self._store.transact(operation, None, self._owner)

        return call


@pytest.fixture
async def tables(path: Path) -> AsyncIterator[Any]:
    store = await SqliteStore.open(path, inline=True)
    yield Proxy(store)
    await store.close()


def a_conversation(owner: str = "ada", **details: Any) -> Conversation:
    times = {"created_at": 1, "touched_at": 1} | details
    return Conversation(id=ids.new(ConversationId), owner=owner, branch=ids.new(BranchId), **times)


def a_turn(branch: Branch, number: int, parent: TurnId | None, size: int = 10) -> Turn:
    return Turn.of(
        id=ids.new(TurnId),
        branch=branch.id,
        number=number,
        parent=parent,
        kind=TurnKind.COMPLETED,
        created_at=5,
        committed_at=7,
        input=(message("user", "hello"),),
        output=(message("assistant", "x" * size),),
    )


def an_attempt(conversation: Conversation, **details: Any) -> Attempt:
    defaults: dict[str, Any] = {
        "id": ids.new(TurnId),
        "owner": conversation.owner,
        "conversation": conversation.id,
        "branch": conversation.branch,
        "lease": ids.new(LeaseId),
        "fence": 3,
        "state": AttemptState.RUNNING,
        "base": None,
        "input": (message("user", "hello"),),
        "created_at": 9,
    }
    return Attempt(**defaults | details)


def ended(conversation: Conversation, at: int) -> Attempt:
    return an_attempt(conversation, state=AttemptState.FAILED, ended_at=at)


async def with_branch(tables: Any, conversation: Conversation) -> Branch:
    branch = Branch(id=conversation.branch, conversation=conversation.id)
    await tables.add_conversation(conversation)
    await tables.add_branch(branch)
    return branch


async def add_chain(tables: Any, branch: Branch, count: int, size: int = 10) -> list[Turn]:
    turns: list[Turn] = []
    for number in range(1, count + 1):
        turns.append(a_turn(branch, number, turns[-1].id if turns else None, size))
        await tables.add_turn(turns[-1])
    return turns


async def test_conversation_survives_storage_and_is_hidden_from_other_owners(tables: Any) -> None:
    plain = a_conversation()
    full = a_conversation(
        conversation_key="k", internal=True, title="T", metadata={"a": "ü"}, revision=4, expires_after=60
    )
    for each in (plain, full):
        await tables.add_conversation(each)
        assert await tables.conversation(each.id) == each
        assert await tables.of("bob").conversation(each.id) is None
    assert await tables.conversation_by_key("", "k") == full
    assert await tables.of("bob").conversation_by_key("", "k") is None


async def test_saved_conversation_has_every_field_changed_but_id_and_owner(tables: Any) -> None:
    first = a_conversation(conversation_key="k")
    await tables.add_conversation(first)
    changed = replace(
        first, branch=ids.new(BranchId), title="T", metadata={"a": "b"}, revision=2, touched_at=8
    )
    await tables.save_conversation(changed)
    assert await tables.conversation(first.id) == changed


async def test_conversation_saved_after_a_read_in_one_transaction_is_written_whole(path: Path) -> None:
    first, other = a_conversation(), a_conversation()

    async def change(tables: Tables, _: None) -> None:
        for each in (first, other):
            await tables.add_conversation(each)
        found = await tables.conversation(first.id)
        assert found is not None
        await tables.save_conversation(replace(found, touched_at=20))
        found = await tables.conversation(first.id)
        assert found is not None
        await tables.save_conversation(replace(other, title="another row than the one read"))
        await tables.save_conversation(replace(found, title="T", touched_at=30))

    store = await SqliteStore.open(path, inline=True)
    await store.transact(change, None, "ada")
    tables = Proxy(store)
    assert await tables.conversation(first.id) == replace(first, title="T", touched_at=30)
    assert (await tables.conversation(other.id)).title == "another row than the one read"
    await store.close()


async def test_conversation_key_names_one_conversation_until_it_is_purged(tables: Any) -> None:
    first, second = a_conversation(conversation_key="k"), a_conversation(conversation_key="k")
    await tables.add_conversation(first)
    with pytest.raises(StoreError):
        await tables.add_conversation(second)
    await tables.save_conversation(replace(first, state=ConversationState.EXPIRED))
    assert (await tables.conversation_by_key("", "k")).id == first.id
    await tables.save_conversation(replace(first, state=ConversationState.PURGED))
    await tables.add_conversation(second)
    assert (await tables.conversation_by_key("", "k")).id == second.id
    assert (await tables.conversation(first.id)).conversation_key is None


async def test_list_returns_live_conversations_last_touched_first(tables: Any) -> None:
    listed = [a_conversation(touched_at=touched) for touched in (5, 5, 3, 9)]
    hidden = [
        a_conversation(internal=True),
        a_conversation("bob"),
        a_conversation(state=ConversationState.PURGED),
    ]
    for each in (*listed, *hidden):
        await with_branch(tables.of(each.owner), each)
    expected = sorted(listed, key=lambda each: (each.touched_at, each.id), reverse=True)
    wanted = ChatFilter()
    assert [each.conversation for each in await tables.listed_chats(wanted, None, 10)] == expected
    places = [ListPosition(each.touched_at, each.id) for each in expected]
    pages = [await tables.listed_chats(wanted, after, 1) for after in (None, *places)]
    assert [each.conversation for page in pages for each in page] == expected


async def test_branch_survives_storage(tables: Any) -> None:
    branch = await with_branch(tables, a_conversation())
    assert await tables.branch(branch.id) == branch
    full = replace(
        branch,
        fence=9,
        head=ids.new(TurnId),
        length=4,
        running=ids.new(TurnId),
        unsettled=ids.new(TurnId),
        pending=(CALL,),
    )
    await tables.save_branch(full)
    assert await tables.branch(branch.id) == full
    assert await tables.branch(ids.new(BranchId)) is None


async def test_turns_survive_storage_with_their_parents(tables: Any) -> None:
    conversation = a_conversation()
    branch = await with_branch(tables, conversation)
    turns = await add_chain(tables, branch, 5)
    fork = await with_branch(tables, a_conversation())
    forked = [a_turn(fork, 3, turns[1].id)]
    forked.append(a_turn(fork, 4, forked[0].id))
    for turn in forked:
        await tables.add_turn(turn)
    assert await tables.turns(branch.id, 0, 5, 10) == turns
    assert await tables.turns(fork.id, 0, 9, 10) == forked
    assert [before.id for before, _ in pairwise(turns)] == [turn.parent for turn in turns[1:]]
    for turn in (*turns, *forked):
        assert await tables.turn(turn.id) == turn
        assert await tables.of("bob").turn(turn.id) is None


async def test_turns_of_a_range_are_its_last_ones_in_order(tables: Any) -> None:
    branch = await with_branch(tables, a_conversation())
    turns = await add_chain(tables, branch, 6)
    assert await tables.turns(branch.id, 1, 5, 10) == turns[1:5]
    assert await tables.turns(branch.id, 0, 5, 2) == turns[3:5]
    assert await tables.turns(branch.id, 6, 9, 2) == []
    assert await tables.turns(ids.new(BranchId), 0, 9, 2) == []


async def test_turn_with_a_taken_id_number_or_unknown_branch_is_refused(tables: Any) -> None:
    branch = await with_branch(tables, a_conversation())
    (turn,) = await add_chain(tables, branch, 1)
    with pytest.raises(StoreError):
        await tables.add_turn(turn)
    with pytest.raises(StoreError):
        await tables.add_turn(a_turn(branch, 1, None))
    with pytest.raises(StoreError):
        await tables.add_turn(a_turn(replace(branch, id=ids.new(BranchId)), 1, None))


@pytest.mark.parametrize("size", [5, LONG_INPUT, 100_000])
async def test_attempt_survives_storage_until_it_is_dropped(tables: Any, path: Path, size: int) -> None:
    conversation = a_conversation()
    await with_branch(tables, conversation)
    attempt = an_attempt(
        conversation,
        base=ids.new(TurnId),
        input=(message("user", "x" * size), CALL),
        on_stop=OnStop.DISCARD,
        on_failure=OnFailure.KEEP,
        idempotency_key="i",
    )
    await tables.add_attempt(attempt)
    assert await tables.attempt(attempt.id) == attempt
    assert await tables.of("bob").attempt(attempt.id) is None
    assert await tables.of(None).running_attempts(attempt.lease) == [attempt]
    changed = replace(
        attempt,
        state=AttemptState.FAILED,
        stop=OnStop.KEEP,
        failure=Failure("code", "why"),
        partial="so far",
        journaled=3,
        fence=7,
        lease=ids.new(LeaseId),
        ended_at=99,
    )
    await tables.save_attempt(changed)
    assert await tables.attempt(attempt.id) == changed
    assert await tables.of(None).running_attempts(changed.lease) == []
    await tables.drop_attempt(attempt.id)
    assert await tables.attempt(attempt.id) is None
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM attempt_input").fetchall() == [(0,)]
    connection.close()


@pytest.mark.parametrize("first", [AttemptState.RUNNING, AttemptState.FAILED])
async def test_attempt_with_a_taken_id_is_refused(tables: Any, first: AttemptState) -> None:
    conversation = a_conversation()
    await with_branch(tables, conversation)
    attempt = an_attempt(conversation, state=first)
    await tables.add_attempt(attempt)
    for state in (AttemptState.RUNNING, AttemptState.FAILED):
        with pytest.raises(StoreError):
            await tables.add_attempt(replace(attempt, state=state))
    assert await tables.attempts(conversation.id, 9) == [attempt]


async def test_journal_count_is_saved_without_rewriting_the_attempt(path: Path) -> None:
    conversation = a_conversation()
    attempt = an_attempt(conversation, input=(message("user", "x" * 50_000),))

    async def journal(tables: Tables, count: int) -> None:
        found = await tables.attempt(attempt.id)
        assert found is not None
        await tables.save_attempt(replace(found, journaled=count))

    store = await SqliteStore.open(path, inline=True)
    tables = Proxy(store)
    await with_branch(tables, conversation)
    await tables.add_attempt(attempt)
    log = path.with_name(f"{path.name}-wal")
    before = log.stat().st_size
    await store.transact(journal, 5, "ada")
    assert log.stat().st_size - before < 20_000
    assert await tables.attempt(attempt.id) == replace(attempt, journaled=5)
    await store.close()


async def test_attempts_of_a_conversation_are_listed_newest_first(tables: Any) -> None:
    conversation, other = a_conversation(), a_conversation()
    for each in (conversation, other):
        await with_branch(tables, each)
    attempts = [ended(conversation, 5), an_attempt(conversation), ended(conversation, 4)]
    for each in (*attempts, an_attempt(other)):
        await tables.add_attempt(each)
    assert await tables.attempts(conversation.id, 10) == attempts[::-1]
    assert await tables.attempts(conversation.id, 2) == attempts[:0:-1]


async def test_old_attempts_are_purged_with_their_journals_unless_unsettled(tables: Any) -> None:
    conversation = a_conversation()
    branch = await with_branch(tables, conversation)
    old, unsettled, fresh = ended(conversation, 5), ended(conversation, 5), ended(conversation, 10)
    running = an_attempt(conversation)
    for each in (old, unsettled, fresh, running):
        await tables.add_attempt(each)
        await tables.add_records(each.id, 0, [b"1"])
        await tables.add_log_chunk(each.id, 0, b"2")
    await tables.save_branch(replace(branch, unsettled=unsettled.id))
    assert await tables.of(None).purge_attempts(10, 10) == 1
    assert (await tables.journal(old.id), await tables.log_chunks(old.id, 0, 9)) == ([], [])
    assert await tables.attempts(conversation.id, 10) == [running, fresh, unsettled]
    assert await tables.of(None).purge_attempts(11, 10) == 1


async def test_rows_of_ended_conversations_are_purged_in_bounded_steps(tables: Any) -> None:
    gone, kept = a_conversation(), a_conversation()
    for each in (gone, kept):
        branch = await with_branch(tables, each)
        await add_chain(tables, branch, 3)
        attempt = ended(each, 5)
        await tables.add_attempt(attempt)
        await tables.add_records(attempt.id, 0, [b"1"])
    assert await tables.of(None).purge_ended(10) == 0
    await tables.save_conversation(replace(gone, state=ConversationState.PURGED))
    assert [await tables.of(None).purge_ended(2) for _ in range(3)] == [2, 2, 0]
    assert await tables.turns(gone.branch, 0, 9, 9) == []
    assert await tables.attempts(gone.id, 9) == []
    assert len(await tables.turns(kept.branch, 0, 9, 9)) == 3
    assert len(await tables.attempts(kept.id, 9)) == 1
    assert (await tables.conversation(gone.id)).state is ConversationState.PURGED


async def test_ended_conversation_with_a_running_attempt_is_not_purged(tables: Any) -> None:
    conversation = a_conversation(state=ConversationState.EXPIRED)
    await with_branch(tables, conversation)
    running = an_attempt(conversation)
    await tables.add_attempt(running)
    assert await tables.of(None).purge_ended(10) == 0
    await tables.save_attempt(replace(running, state=AttemptState.FAILED, ended_at=3))
    assert await tables.of(None).purge_ended(10) == 1


async def test_journal_keeps_the_first_record_of_each_number(tables: Any) -> None:
    attempt = ids.new(TurnId)
    await tables.add_records(attempt, 0, [b"a", b"b"])
    await tables.add_records(attempt, 1, [b"x", b"c"])
    assert await tables.journal(attempt) == [b"a", b"b", b"c"]
    await tables.drop_journal(attempt)
    assert await tables.journal(attempt) == []


async def test_tickets_are_numbered_per_branch_without_reuse(tables: Any) -> None:
    branch = await with_branch(tables, a_conversation())
    lease = ids.new(LeaseId)

    def ticket(**details: Any) -> Ticket:
        return Ticket(
            attempt=ids.new(TurnId),
            conversation=branch.conversation,
            branch=branch.id,
            lease=lease,
            deadline=9,
            **details,
        )

    first = await tables.add_ticket(ticket(idempotency_key="i", fingerprint=b"f"))
    second = await tables.add_ticket(ticket())
    front = await tables.add_ticket(ticket(front=True))
    assert [each.number for each in (first, second, front)] == [1, 2, 3]
    assert await tables.tickets(branch.id) == [front, first, second]
    held = sorted([first, second, front], key=lambda each: each.attempt)
    assert await tables.of(None).held_tickets(lease) == [HeldTicket("ada", each) for each in held]
    assert await tables.ticket(first.attempt) == first
    await tables.drop_ticket(front.attempt)
    assert await tables.ticket(front.attempt) is None
    assert (await tables.add_ticket(ticket())).number == 4


async def test_tickets_whose_conversation_is_missing_are_dropped(tables: Any, path: Path) -> None:
    branch, lease = await with_branch(tables, a_conversation()), ids.new(LeaseId)
    waiting = Ticket(
        attempt=ids.new(TurnId),
        conversation=branch.conversation,
        branch=branch.id,
        front=False,
        lease=lease,
        deadline=9,
        idempotency_key=None,
        fingerprint=b"",
        claimed=None,
    )
    await tables.add_ticket(waiting)
    with apsw.Connection(str(path)) as damaging:
        damaging.execute("DELETE FROM conversation")
    assert len(await tables.of(None).held_tickets(lease)) == 1
    await tables.of(None).drop_orphaned_tickets(lease)
    assert await tables.of(None).held_tickets(lease) == []


async def test_claim_can_be_replaced_and_is_purged_after_its_expiry(tables: Any) -> None:
    claim = Claim(
        owner="ada",
        idempotency_key="i",
        fingerprint=b"f",
        conversation=ids.new(ConversationId),
        attempt=ids.new(TurnId),
    )
    await tables.save_claim(claim)
    assert await tables.claim("i") == claim
    assert await tables.of("bob").claim("i") is None
    assert await tables.of(None).purge_claims(1_000, 10) == 0
    later = replace(claim, attempt=ids.new(TurnId), expires_at=10)
    await tables.save_claim(later)
    assert await tables.claim("i") == later
    assert await tables.of(None).purge_claims(10, 10) == 0
    assert await tables.of(None).purge_claims(11, 10) == 1
    assert await tables.claim("i") is None


async def test_lease_counts_its_beats_until_it_is_dropped(tables: Any) -> None:
    lease = ids.new(LeaseId)
    assert await tables.lease(lease) is None
    await tables.beat(lease)
    await tables.beat(lease)
    assert await tables.lease(lease) == Lease(lease, 2)
    assert await tables.of(None).leases() == [Lease(lease, 2)]
    await tables.of(None).drop_lease(lease)
    assert await tables.of(None).leases() == []


@pytest.mark.parametrize("size", [250, 800, 1_800])
async def test_turn_takes_at_most_two_fifths_more_bytes_than_its_payload(path: Path, size: int) -> None:
    async def fill(tables: Tables, _: None) -> int:
        branch = await with_branch(tables, a_conversation())
        return sum(len(turn.body) for turn in await add_chain(tables, branch, 2_000, size))

    await (await SqliteStore.open(path)).close()
    empty = path.stat().st_size  # noqa: ASYNC240
    store = await SqliteStore.open(path)
    payload = await store.transact(fill, None, "ada")
    await store.close()
    assert path.stat().st_size - empty <= 1.4 * payload  # noqa: ASYNC240


A, B = some_id(BranchId, 1), some_id(BranchId, 2)
LINE = (Stretch(B, 3, 2**40), Stretch(A, 0, 3))


def test_packed_line_survives_storage_with_the_refs_of_its_branches() -> None:
    assert line_of(pack_line(LINE, [7, 5])) == (LINE, {B: 7, A: 5})


def test_packed_line_without_stretches_is_null() -> None:
    assert pack_line((), []) is None
    assert line_of(None) == ((), {})


def test_packed_line_that_is_cut_off_raises_store_corrupt() -> None:
    packed = pack_line(LINE, [7, 5])
    assert packed is not None
    with pytest.raises(StoreCorrupt):
        line_of(packed[:-1])


@pytest.fixture
async def chats(path: Path) -> list[str]:
    """The ids of two chats in a store that is closed."""
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        made = [await ledger.conversation() for _ in range(2)]
        for chat, answer in zip(made, ("A heron.", "An egret."), strict=True):
            await run_turn(chat, "What is it?", answer)
        return [str(chat.id) for chat in made]


async def test_turn_with_a_flipped_byte_in_its_text_is_corrupt_and_the_check_reports_it(
    path: Path, chats: list[str]
) -> None:
    replace_bytes(path, b"A heron.", b"A baron.")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        damaged, sound = [await ledger.conversation(id) for id in chats]
        with pytest.raises(StoreCorrupt, match="does not match its checksum"):
            await damaged.turns()
        assert [turn.text for turn in await sound.turns()] == ["An egret."]
        [finding] = [each for each in await ledger.check() if each.rule is Rule.DOCUMENT]
        assert "does not match its checksum" in finding.message


async def test_turn_with_a_changed_event_log_is_corrupt(path: Path, chats: list[str]) -> None:
    execute(path, "UPDATE turn SET log = x'00'")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        [turn] = await chat.turns()
        with pytest.raises(StoreCorrupt, match="does not match its checksum"):
            async for _ in chat.events(turn.id):
                pass


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE turn SET branch = (SELECT max(ref) FROM branch) WHERE branch = 1",
        "UPDATE turn SET parent = zeroblob(16)",
    ],
)
async def test_turn_moved_to_another_branch_or_parent_is_corrupt(
    path: Path, chats: list[str], change: str
) -> None:
    execute(path, "DELETE FROM turn WHERE branch = 2")
    execute(path, change)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        assert "does not match its checksum" in str(await ledger.check())


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM turn WHERE branch = 1 AND number = 1",
        "DELETE FROM turn WHERE branch = 1 AND number = 3",
        "DELETE FROM turn WHERE branch = 1",
        "UPDATE branch SET length = 0 WHERE ref = 1",
        "UPDATE branch SET length = 2 WHERE ref = 1",
        "UPDATE branch SET length = 4 WHERE ref = 1",
        "UPDATE branch SET id = zeroblob(16) WHERE ref = 1",
    ],
)
async def test_missing_turn_raises_store_corrupt_on_read_export_and_continue(
    path: Path, chats: list[str], damage: str
) -> None:
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        for answer in ("An egret.", "A stork."):
            await run_turn(chat, "And now?", answer)
    execute(path, damage)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        with pytest.raises(StoreCorrupt):
            await chat.turns()
        with pytest.raises(StoreCorrupt):
            await chat.history()
        if "length = 2" not in damage and "length = 0" not in damage:
            with pytest.raises(StoreCorrupt):
                [line async for line in ledger.export(chat.id)]
        if "SET id" not in damage:
            with pytest.raises(StoreCorrupt):
                await run_turn(chat, "Are you there?")
        assert await ledger.check() != []


async def test_branch_of_another_conversation_raises_store_corrupt_on_read_and_continue(
    path: Path, chats: list[str]
) -> None:
    # As if a damaged index entry led to another row.
    execute(path, "UPDATE branch SET conversation = (SELECT max(conversation) FROM branch) WHERE ref = 1")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        with pytest.raises(StoreCorrupt):
            await chat.turns()
        with pytest.raises(StoreCorrupt):
            await run_turn(chat, "Are you there?")


async def test_checksum_of_an_earlier_version_is_still_verified(path: Path, chats: list[str]) -> None:
    connection = apsw.Connection(str(path))
    for ref, *columns, body, log in connection.execute(
        "SELECT ref, id, number, kind, created_at, committed_at, body, log FROM turn"
    ).fetchall():
        row = crc32(body, crc32(pack(">16sqBqq", *columns)))
        earlier = row | (crc32(log or b"") & 0x7FFF_FFFF) << 32
        connection.execute("UPDATE turn SET checksum = ? WHERE ref = ?", (earlier, ref))
    connection.close()
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        [turn] = await (await ledger.conversation(chats[0])).turns()
        assert turn.text == "A heron."
        assert await ledger.check() == []
    replace_bytes(path, b"A heron.", b"A baron.")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        assert "does not match its checksum" in str(await ledger.check())


async def test_turn_of_an_older_version_without_a_checksum_is_read(path: Path, chats: list[str]) -> None:
    execute(path, "UPDATE turn SET checksum = NULL")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        [turn] = await (await ledger.conversation(chats[0])).turns()
        assert turn.text == "A heron."
        assert await ledger.check() == []


async def test_row_with_a_value_of_another_type_is_corrupt(path: Path, chats: list[str]) -> None:
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.pragma("writable_schema", 1)
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'branch BLOB NOT NULL', 'branch BLOB')")
    connection.pragma("writable_schema", "RESET")
    connection.close()
    execute(path, "UPDATE conversation SET branch = NULL")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        with pytest.raises(StoreCorrupt, match="a row cannot be read: AttributeError"):
            await ledger.conversation(chats[0])


async def test_bug_in_an_operation_is_not_reported_as_damage(path: Path) -> None:
    async def broken(tables: Tables, _: None) -> None:
        raise AttributeError("a bug")

    store = await SqliteStore.open(path, inline=True)
    with pytest.raises(AttributeError):
        await store.transact(broken, None, "ada")
    await store.close()


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new))


def execute(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def test_change_kind_numbers_are_unchanged() -> None:
    """Files contain them: append new kinds at the end."""
    assert [kind.value for kind in CHANGE_KINDS] == [
        "chat.created",
        "chat.changed",
        "chat.deleted",
        "chat.restored",
        "chat.switched",
        "turn.queued",
        "turn.running",
        "turn.committed",
        "turn.failed",
        "turn.stopped",
        "turn.withdrawn",
        "turn.flagged",
    ]
    assert set(ChangeKind) - set(_NUMBER_OF_CHANGE) == {ChangeKind.START, ChangeKind.GAP}


def test_positions_of_changes_sort_by_number_and_differ_when_any_input_differs() -> None:
    numbers = (1, 9, 10, 16, 255, 2**32, 2**60 - 1)
    positions = [START, *[position_of(number, 9 - place, b"a", None) for place, number in enumerate(numbers)]]
    assert sorted(positions) == positions
    columns = [(1, b"a", None), (2, b"a", None), (1, b"b", None), (1, b"a", b"t")]
    assert len({position_of(1, *each) for each in columns}) == 4


async def add_changes(tables: Any, count: int) -> None:
    for at in range(count):
        change = LiveChange(
            kind=ChangeKind.TURN_RUNNING,
            owner="ada",
            conversation=ids.new(ConversationId),
            turn=ids.new(TurnId),
            branch=ids.new(BranchId),
            at=at,
        )
        await tables.add_change(change)


async def test_changes_and_tail_continue_after_any_position(tables: Any) -> None:
    whole = tables.of(None)
    assert await whole.purge_changes(9, 9, 9) == 0
    await add_changes(tables, 20)
    changes = await tables.changes(None, 99)
    positions = [START, *[change.position for change in changes]]
    assert positions[-1] == await whole.newest_position()
    for number, position in enumerate(positions):
        assert await tables.is_kept(position)
        assert await tables.changes(position, 99) == changes[number:]
        tail = await whole.tail(position, {"ada"}, 3)
        assert tail.changes == changes[number : number + 3]
        assert tail.through == positions[min(number + 3, 20)]


async def test_position_of_no_change_and_with_the_mark_of_another_is_not_kept(tables: Any) -> None:
    await add_changes(tables, 3)
    kept = [START, *[change.position for change in await tables.changes(None, 9)]]
    assert [await tables.is_kept(position) for position in kept] == [True] * 4
    end = kept[-1]
    no_change = [f"{99:015x}" + end[15:], end[1:], "g" + end[1:], f"-{end[1:]}", f"{end} ", "1-2", "1", ""]
    other_mark = [START[:-8] + end[-8:], end[:-8] + START[-8:]]
    assert not any([await tables.is_kept(position) for position in no_change + other_mark])


NONCE = "a-nonce-that-a-page-has-made-up"


async def test_share_code_nonce_and_visitor_token_are_not_in_the_files(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        share, code = await Host(ledger).shares.create(scope="shop")
        visit = await Host(ledger).shares.exchange(code, NONCE)
        files = [file for file in path.parent.iterdir() if file.is_file()]
        stored = b"".join(file.read_bytes() for file in files)
    assert share.digest in stored
    assert visit.token.digest in stored
    for secret in (code, visit.text, NONCE):
        assert secret[4:20].encode() not in stored
        assert secret[-12:].encode() not in stored


async def test_token_text_is_not_in_the_files(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        made, text = await Host(ledger).tokens.create(scopes=list(TokenScope))
        files = [file for file in path.parent.iterdir() if file.is_file()]
        stored = b"".join(file.read_bytes() for file in files)
    assert made.digest in stored
    assert text[4:20].encode() not in stored
    assert text[-12:].encode() not in stored


async def test_token_with_unknown_scopes_is_corrupt(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        made, _ = await Host(ledger).tokens.create(scopes=list(TokenScope))
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE token SET scopes = 'turns:run everything'")
        connection.close()
        with pytest.raises(StoreCorrupt):
            await Host(ledger).tokens.find(made.digest)
        [finding] = await ledger.check()
    assert finding.rule is Rule.DOCUMENT
    assert finding.message.startswith(f"{made.id} cannot be read: The scopes")
