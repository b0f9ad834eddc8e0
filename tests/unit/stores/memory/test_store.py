"""The memory store: undo of failed transactions, limits, tombstones, and the check of its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.check.test_check import raw_id
from tests.unit.engine.populated_store import PopulatedStore, populate
from tests.unit.engine.stage import HandClock, drive, memory_tables, memory_whole
from tests.unit.model.shapes import EXAMPLES, assistant, repeatable, some_id, user
from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.engine.lifecycle.purge import PurgeRequest, purge
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    InvalidInput,
    LedgerClosed,
    StoreError,
)
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Branch, Claim, Conversation, ConversationState, Ticket, Usage
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TokenId, TurnId
from turnledger.model.text.search import TITLES, parse_query
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnKind
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.stores.memory import whole as whole_store
from turnledger.stores.memory.database import MemoryRows, UndoLog
from turnledger.stores.memory.whole import MemoryWholeStore
from turnledger.types import Rule


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Abandoned(Exception):
    pass


# Undo: whatever a transaction did, raising takes it all back.


def conversation(n: int, **changes: Any) -> Conversation:
    fields: dict[str, Any] = {
        "id": some_id(ConversationId, n),
        "owner": "ann",
        "branch": some_id(BranchId, n),
    }
    return Conversation(**{**fields, "created_at": n, "touched_at": n, **changes})


def branch(n: int, **changes: Any) -> Branch:
    return Branch(**{"id": some_id(BranchId, n), "conversation": some_id(ConversationId, n), **changes})


def attempt(n: int, **changes: Any) -> Attempt:
    fields: dict[str, Any] = {
        "id": some_id(TurnId, n),
        "owner": "ann",
        "conversation": some_id(ConversationId, n),
        "branch": some_id(BranchId, n),
        "lease": some_id(LeaseId, n),
        "fence": 1,
        "state": AttemptState.RUNNING,
        "base": None,
        "input": (user(),),
        "created_at": n,
    }
    return Attempt(**{**fields, **changes})


def turn(n: int, number: int) -> Turn:
    return Turn.of(
        id=some_id(TurnId, 10 * n + number),
        branch=some_id(BranchId, n),
        number=number,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=n,
        committed_at=n,
        input=(user(),),
        output=(assistant(),),
    )


def claim(n: int, number: int) -> Claim:
    return Claim(
        owner="ann",
        idempotency_key=f"i{n}",
        fingerprint=b"",
        conversation=some_id(ConversationId, n),
        attempt=some_id(TurnId, number),
        expires_at=number,
    )


async def add_conversation(tables: MemoryTables, n: int, number: int = 2) -> None:
    await tables.add_conversation(conversation(n, conversation_key=f"k{n}" if number % 2 else None))
    await tables.add_branch(branch(n))


async def end_conversation(tables: MemoryTables, n: int, number: int) -> None:
    found = await tables.conversation(some_id(ConversationId, n))
    if found is not None:
        states = [ConversationState.LIVE, ConversationState.PURGED, ConversationState.EXPIRED]
        await tables.save_conversation(replace(found, state=states[number % 3]))


async def end_attempt(tables: MemoryTables, n: int, number: int) -> None:
    if await tables.attempt(some_id(TurnId, n)):
        await tables.save_attempt(attempt(n, state=AttemptState.FAILED, ended_at=number))


async def save_flags(tables: MemoryTables, n: int, number: int) -> None:
    if await tables.turn(some_id(TurnId, 10 * n + 1)):
        flags = {number: Flags(to_user=False)} if number > 2 else {}
        await tables.save_flags(some_id(TurnId, 10 * n + 1), flags)


async def add_ticket(tables: MemoryTables, n: int, number: int) -> None:
    if await tables.branch(some_id(BranchId, number)):
        ticket = Ticket(
            attempt=some_id(TurnId, n),
            conversation=some_id(ConversationId, number),
            branch=some_id(BranchId, number),
            lease=some_id(LeaseId, n),
            deadline=5,
        )
        await tables.add_ticket(ticket)


TablesStep: TypeAlias = Callable[[MemoryTables, int, int], Coroutine[Any, Any, Any]]
WholeStep: TypeAlias = Callable[[MemoryWholeStore, int, int], Coroutine[Any, Any, Any]]


def on_branch(step: TablesStep) -> TablesStep:
    """Take this step only if there is a branch."""

    async def guarded(tables: MemoryTables, n: int, number: int) -> None:
        if await tables.branch(some_id(BranchId, n)):
            await step(tables, n, number)

    return guarded


OF_ANN: dict[str, TablesStep] = {
    "add conversation": add_conversation,
    "end conversation": end_conversation,
    "save branch": on_branch(lambda tables, n, number: tables.save_branch(branch(n, fence=number))),
    "add turn": on_branch(lambda tables, n, number: tables.add_turn(turn(n, number))),
    "save flags": save_flags,
    "add attempt": on_branch(lambda tables, n, _: tables.add_attempt(attempt(n))),
    "end attempt": end_attempt,
    "drop attempt": lambda tables, n, _: tables.drop_attempt(some_id(TurnId, n)),
    "add records": lambda tables, n, number: tables.add_records(some_id(TurnId, n), number, [b"a", b"b"]),
    "drop journal": lambda tables, n, _: tables.drop_journal(some_id(TurnId, n)),
    "add ticket": add_ticket,
    "drop ticket": lambda tables, n, _: tables.drop_ticket(some_id(TurnId, n)),
    "save claim": lambda tables, n, number: tables.save_claim(claim(n, number)),
    "drop claim": lambda tables, n, _: tables.drop_claim(f"i{n}"),
    "purge ended": lambda tables, n, number: tables.purge_ended(number),
}
OF_ALL: dict[str, WholeStep] = {
    "purge attempts": lambda whole, n, number: whole.purge_attempts(number, n),
    "purge claims": lambda whole, n, number: whole.purge_claims(number, n),
    "purge ended of all": lambda whole, n, number: whole.purge_ended(number),
    "beat": lambda whole, n, _: whole.beat(some_id(LeaseId, n)),
    "drop lease": lambda whole, n, _: whole.drop_lease(some_id(LeaseId, n)),
    "bury lease": lambda whole, n, _: whole.bury_lease(some_id(LeaseId, n)),
}
Step = tuple[str, int, int]
steps = st.tuples(st.sampled_from(sorted(OF_ANN | OF_ALL)), st.integers(1, 3), st.integers(1, 4))


def snapshot(database: Database) -> dict[str, Any]:
    """All rows, copied two levels deep: below that they cannot change. Empty lines and journals are none."""
    tables = {name: dict(rows) for name, rows in vars(database).items() if isinstance(rows, dict)}
    for name in ("lines", "journals"):
        tables[name] = {key: dict(rows) for key, rows in tables[name].items() if rows}
    return tables


async def take(whole: Any, taken: list[Step]) -> None:
    for name, n, number in taken:
        if name in OF_ALL:
            await OF_ALL[name](whole, n, number)
        else:
            await OF_ANN[name](whole.of("ann"), n, number)


async def take_and_raise(whole: Any, taken: list[Step]) -> None:
    await take(whole, taken)
    raise Abandoned


@settings(repeatable, max_examples=2 * EXAMPLES)
@given(st.lists(steps, max_size=12), st.lists(steps, max_size=12), st.sampled_from([None, 1, 2]))
def test_failed_transaction_is_undone_completely(
    before: list[Step], failed: list[Step], maximum: int | None
) -> None:
    database = Database(max_conversations=maximum)
    for step in [("add conversation", 1, 1), ("add turn", 1, 1), *before]:
        with suppress(StoreError):
            drive(MemoryStore(database).transact_whole(take, [step]))
    earlier = snapshot(database)
    # An operation that the store itself refuses ends the transaction likewise.
    with pytest.raises((Abandoned, StoreError)):
        drive(MemoryStore(database).transact_whole(take_and_raise, failed))
    assert snapshot(database) == earlier


@pytest.mark.parametrize("step", [("add turn", 1, 1), ("add records", 1, 1)], ids=["line", "journal"])
def test_failed_transaction_leaves_no_empty_rows(step: Step) -> None:
    database = Database()
    drive(add_conversation(memory_tables(database), 1))
    before = deepcopy(database)
    with pytest.raises(Abandoned):
        drive(MemoryStore(database).transact_whole(take_and_raise, [step]))
    assert database == before


def test_cancelled_transaction_is_undone() -> None:
    async def beat_and_exit(tables: Any, n: int) -> None:
        await tables.beat(some_id(LeaseId, n))
        raise KeyboardInterrupt

    database = Database()
    with pytest.raises(KeyboardInterrupt):
        drive(MemoryStore(database).transact(beat_and_exit, 1, "ann"))
    assert database == Database()


# What the store refuses.


@pytest.mark.parametrize(
    "taken",
    [
        [("add conversation", 1, 2), ("add conversation", 1, 2)],
        [("add conversation", 1, 1), ("add turn", 1, 1), ("add turn", 1, 1)],
        [("add conversation", 1, 1), ("add attempt", 1, 1), ("add attempt", 1, 1)],
    ],
    ids=["conversation", "turn", "attempt"],
)
def test_row_that_exists_cannot_be_added_again(taken: list[Step]) -> None:
    with pytest.raises(StoreError, match="already"):
        drive(MemoryStore().transact_whole(take, taken))


def test_conversation_key_that_is_taken_is_refused() -> None:
    tables = memory_tables()
    drive(tables.add_conversation(conversation(1, conversation_key="k")))
    with pytest.raises(StoreError, match="'k' is taken"):
        drive(tables.add_conversation(conversation(2, conversation_key="k")))
    bob = memory_tables(tables._db, "bob")
    drive(bob.add_conversation(conversation(3, conversation_key="k", owner="bob")))


async def test_closed_store_refuses_reads_and_writes() -> None:
    store = MemoryStore()
    await store.close()
    await store.close()
    for run in (store.transact, store.read):
        with pytest.raises(LedgerClosed):
            await run(take, [], "ann")
    for run_whole in (store.transact_whole, store.read_whole, store.inspect):
        with pytest.raises(LedgerClosed):
            await run_whole(take, [])


# Bounds.


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def database() -> Database:
    return Database(max_conversations=2)


@pytest.fixture
async def ledger(clock: HandClock, database: Database) -> AsyncIterator[Ledger]:
    async with await Ledger.over(MemoryStore(database), clock=clock, random=Random(1)) as opened:
        yield opened


async def run_turn(chat: Chat, clock: HandClock) -> None:
    clock.advance(1)
    async with chat.turn("Hello") as turn:
        turn.emit("Hi")


async def live(*chats: Chat) -> list[bool]:
    found = []
    for chat in chats:
        try:
            await chat.info()
            found.append(True)
        except ConversationExpired:
            found.append(False)
    return found


async def test_conversation_beyond_the_limit_expires_the_least_recently_used(
    ledger: Ledger, clock: HandClock
) -> None:
    one, two = await ledger.conversation(conversation_key="one"), await ledger.conversation()
    await run_turn(one, clock)
    await run_turn(two, clock)
    await run_turn(one, clock)
    clock.advance(1)
    three = await ledger.conversation()
    assert await live(one, two, three) == [True, False, True]
    with pytest.raises(ConversationExpired):
        async with two.turn("Still there?"):
            pass


async def test_conversation_expired_by_the_limit_is_reported_to_its_owner(
    ledger: Ledger, database: Database
) -> None:
    one = await ledger.for_owner("ann", scope="shop").conversation()
    await ledger.for_owner("bob").conversation(internal=True)
    for _ in range(2):
        await ledger.for_owner("cy").conversation()
    gone = [each for each in database.changes.values() if each.kind is ChangeKind.CHAT_DELETED]
    assert [(each.owner, each.conversation, each.scope, each.detail) for each in gone] == [
        ("ann", one.id, "shop", "expired")
    ]


async def test_deleted_conversation_is_purged_for_room_before_another_expires(
    ledger: Ledger, clock: HandClock
) -> None:
    one, two = await ledger.conversation(), await ledger.conversation(title="secret")
    await run_turn(one, clock)
    await run_turn(two, clock)
    await two.delete()
    clock.advance(1)
    three = await ledger.conversation()
    assert await live(one, three) == [True, True]
    with pytest.raises(ConversationDeleted, match="purged"):
        await ledger.restore(two.id)
    with pytest.raises(ConversationDeleted) as gone:
        await two.info()
    assert gone.value.restorable_until is None
    assert await ledger.check() == []


async def test_expired_conversation_keeps_its_key_and_is_not_replaced(
    ledger: Ledger, clock: HandClock
) -> None:
    await ledger.conversation(conversation_key="one")
    for _ in range(2):
        clock.advance(1)
        await ledger.conversation()
    with pytest.raises(ConversationExpired):
        await ledger.conversation(conversation_key="one")


async def test_conversation_with_a_running_turn_is_not_expired_by_the_limit(
    ledger: Ledger, clock: HandClock
) -> None:
    one, two = await ledger.conversation(), await ledger.conversation()
    async with one.turn("Hello") as turn:
        clock.advance(1)
        await ledger.conversation()
        assert await live(one, two) == [True, False]
        turn.emit("Hi")
    assert len(await one.turns()) == 1


async def test_conversation_limit_holds_again_once_no_turn_runs(
    ledger: Ledger, clock: HandClock, database: Database
) -> None:
    chats = [await ledger.conversation() for _ in range(2)]
    blocks = [chat.turn("Hello") for chat in chats]
    for block in blocks:
        (await block.__aenter__()).emit("Hi")
    for _ in range(2):
        chats.append(await ledger.conversation())
        blocks.append(chats[-1].turn("Hello"))
        (await blocks[-1].__aenter__()).emit("Hi")
    for block in blocks:
        await block.__aexit__(None, None, None)
    clock.advance(1)
    chats.append(await ledger.conversation())
    assert sum(await live(*chats)) <= 2


async def test_time_to_live_counts_from_the_last_turn(clock: HandClock) -> None:
    store = MemoryStore(Database(ttl_ms=10_000))
    async with await Ledger.over(store, clock=clock, random=Random(1)) as ledger:
        chat = await ledger.conversation()
        clock.advance(8)
        await run_turn(chat, clock)
        clock.advance(9)
        assert await live(chat) == [True]
        clock.advance(1)
        assert await live(chat) == [False]


async def test_conversation_may_set_its_own_time_to_live(clock: HandClock) -> None:
    store = MemoryStore(Database(ttl_ms=10_000))
    async with await Ledger.over(store, clock=clock, random=Random(1)) as ledger:
        long, short = await ledger.conversation(expires_after=60), await ledger.conversation()
        clock.advance(10)
        assert await live(long, short) == [True, False]


# Tombstones.


def with_ended(*numbers: int, turns: int = 0) -> Database:
    """Deleted conversations with turns and a failed attempt each."""
    database = Database()
    tables = memory_tables(database)
    for n in numbers:
        drive(add_conversation(tables, n))
        for number in range(1, turns + 1):
            drive(tables.add_turn(turn(n, number)))
        drive(tables.add_attempt(attempt(n, state=AttemptState.FAILED, ended_at=1)))
        drive(end_conversation(tables, n, 1))
    return database


def purged(database: Database, limit: int) -> int:
    return drive(MemoryStore(database).transact_whole(purge, PurgeRequest(10**6, 0, limit)))


def test_tombstones_beyond_the_limit_are_dropped_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_store, "KEPT_TOMBSTONES", 2)
    database = with_ended(1, 2, 3, turns=2)
    purged(database, 100)
    tables = memory_tables(database)
    found = [drive(tables.conversation(some_id(ConversationId, n))) for n in (1, 2, 3)]
    assert [each is not None for each in found] == [False, True, True]
    assert len(database.branches) == len(database.ended) == 2


def test_turns_of_ended_conversations_are_purged_in_bounded_steps() -> None:
    database = with_ended(1, 2, turns=3)
    assert [drive(memory_whole(database).purge_ended(3)) for _ in range(4)] == [3, 3, 2, 0]
    assert database.turns == {}
    assert database.attempts == {}


def test_dropped_tombstone_takes_all_its_rows_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_store, "KEPT_TOMBSTONES", 1)
    database = with_ended(1, 2, turns=3)
    for _ in range(10):
        purged(database, 1)
    assert database.turns == {}
    assert database.attempts == {}


def test_turn_of_a_dropped_tombstone_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_store, "KEPT_TOMBSTONES", 1)
    database = with_ended(1, 2, turns=3)
    while drive(memory_whole(database).purge_ended(1)):
        pass
    found = [drive(memory_tables(database).turn(turn(1, number).id)) for number in (1, 2, 3)]
    assert found == [None, None, None]


async def test_conversation_of_a_dropped_tombstone_is_not_found(
    ledger: Ledger, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_store, "KEPT_TOMBSTONES", 1)
    chats = [await ledger.conversation() for _ in range(2)]
    for chat in chats:
        await chat.delete(purge=True)
    drive(memory_whole(database).purge_ended(10))
    with pytest.raises(ConversationNotFound):
        await ledger.conversation(chats[0].id)


def test_turns_whose_removal_is_undone_are_in_order_again() -> None:
    database = with_ended(1, turns=3)
    tables = memory_tables(database)
    before = drive(tables.turns(some_id(BranchId, 1), 0, 9, 9))
    drive(tables.purge_ended(2))
    tables._log.undo()
    assert len(before) == 3
    assert drive(tables.turns(some_id(BranchId, 1), 0, 9, 9)) == before
    assert drive(tables.turns(some_id(BranchId, 1), 0, 9, 1)) == before[-1:]


tables = st.dictionaries(st.integers(0, 4), st.integers())


@repeatable
@given(tables, st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers())))
def test_undo_log_restores_every_row(table: dict[int, int], steps: list[tuple[int, int | None]]) -> None:
    before, plain, log = dict(table), dict(table), UndoLog()
    changed = MemoryRows(Database(), log)
    for name, row in steps:
        if row is None:
            changed._remove(table, name)
            plain.pop(name, None)
        else:
            changed._put(table, name, row)
            plain[name] = row
        assert table == plain
    is_changed = any(row is not None for _, row in steps) or before != plain
    assert log.has_written or not is_changed
    log.undo()
    assert table == before
    assert not log.has_written


NOWHERE = BranchId("branch_" + raw_id(9))


@pytest.fixture
def rows() -> Database:
    return Database()


@pytest.fixture
async def lived(rows: Database) -> AsyncIterator[PopulatedStore]:
    lived = await populate(MemoryStore(rows))
    yield lived
    await lived.ledger.close()


def last_turn(rows: Database) -> Turn:
    return list(rows.turns.values())[-1]


def strand_a_turn(rows: Database) -> None:
    turn = replace(last_turn(rows), id=TurnId("turn_" + raw_id(9)), branch=NOWHERE)
    rows.turns[turn.id] = turn
    rows.lines[NOWHERE] = {turn.number: turn}


def place_a_turn_too_early(rows: Database) -> None:
    branch = next(each for each in rows.branches.values() if each.length == each.start > 0)
    turn = replace(last_turn(rows), id=TurnId("turn_" + raw_id(9)), branch=branch.id, number=1)
    rows.turns[turn.id] = turn
    rows.lines.setdefault(branch.id, {})[1] = turn


def keep_a_turn_out_of_its_line(rows: Database) -> None:
    turn = replace(last_turn(rows), id=TurnId("turn_" + raw_id(9)), number=99)
    rows.turns[turn.id] = turn


def keep_an_origin_for_nobody(rows: Database) -> None:
    origin = next(iter(rows.origins.values()))
    rows.origins[NOWHERE] = replace(origin, branch=NOWHERE)


def keep_a_journal_for_nobody(rows: Database) -> None:
    rows.journals[TurnId("turn_" + raw_id(9))] = {0: b"{}"}


def keep_a_log_for_nobody(rows: Database) -> None:
    rows.logs[TurnId("turn_" + raw_id(9))] = {}


def keep_flags_for_nobody(rows: Database) -> None:
    rows.flags["ann", TurnId("turn_" + raw_id(9))] = {}


def name_a_conversation_that_is_gone(rows: Database) -> None:
    rows.by_key["ann", "", "lost"] = ConversationId("conv_" + raw_id(9))


def lead_a_text_to_no_token(rows: Database) -> None:
    rows.by_digest[b"digest"] = TokenId("tok_" + raw_id(9))


def count_a_live_one_as_ended(rows: Database) -> None:
    live = next(id for id in rows.conversations if id not in rows.ended)
    rows.ended[live] = None


def count_too_little_of_a_branch(rows: Database) -> None:
    branch = next(each for each in rows.branches.values() if each.bytes)
    rows.branches[branch.id] = replace(branch, bytes=branch.bytes - 1)


def count_too_much_of_an_owner(rows: Database) -> None:
    stored = rows.stored["ann"]
    rows.stored["ann"] = Usage(bytes=stored.bytes + 1, chats=stored.chats)


def count_for_nobody(rows: Database) -> None:
    rows.stored["nobody"] = Usage(bytes=16_384)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (count_too_little_of_a_branch, "has a wrong byte count; the usage of its owner is wrong"),
        (count_too_much_of_an_owner, "The usage of 'ann' is recorded as "),
        (count_for_nobody, "The usage of 'nobody' is recorded as 16384 bytes in 0 chats, not 0 in 0"),
        (strand_a_turn, "is on a missing branch."),
        (place_a_turn_too_early, "has a number before the start of its branch"),
        (keep_a_turn_out_of_its_line, " of its branch."),
        (keep_an_origin_for_nobody, "refers to a missing branch"),
        (keep_a_journal_for_nobody, "A journal refers to missing attempt turn_"),
        (keep_a_log_for_nobody, "An event log refers to missing attempt turn_"),
        (keep_flags_for_nobody, "match no stored turn"),
        (name_a_conversation_that_is_gone, "The conversation_key 'lost' of 'ann' refers to conv_"),
        (lead_a_text_to_no_token, "A token digest refers to tok_"),
        (count_a_live_one_as_ended, "but the purge index differs"),
    ],
)
async def test_check_reports_each_disagreement_between_rows(
    lived: PopulatedStore, rows: Database, damage: Callable[[Database], None], message: str
) -> None:
    assert await lived.ledger.check() == []
    damage(rows)
    [finding] = await lived.ledger.check()
    assert finding.rule is Rule.STORE
    assert message in finding.message


async def test_check_reports_a_line_with_a_missing_turn(lived: PopulatedStore, rows: Database) -> None:
    turn = last_turn(rows)
    del rows.turns[turn.id]
    [problem] = await memory_whole(rows).inconsistencies(9)
    assert f"is {turn.id}, which is missing" in problem


async def test_check_reports_disagreements_up_to_its_limit(lived: PopulatedStore, rows: Database) -> None:
    for number in range(5):
        rows.journals[TurnId("turn_" + raw_id(number))] = {}
    assert len(await memory_whole(rows).inconsistencies(3)) == 3


async def places(tables: Tables, typed: str) -> list[int]:
    return [each.place for each in await tables.search(None, parse_query(typed), None, 10)]


async def test_search_places_rise_and_those_of_titles_lie_above_turns() -> None:
    store = MemoryStore()
    async with await Ledger.over(store) as ledger:
        for number in range(3):
            chat = await ledger.conversation(title=f"Heron {number}")
            async with chat.turn("A heron?") as turn:
                turn.emit("Yes.")
        found = await store.read(places, "heron", "local")
    assert found == sorted(found, reverse=True)
    assert [place > TITLES for place in found] == [True] * 3 + [False] * 3


async def test_undone_transaction_takes_no_search_place() -> None:
    rows = Database()
    store = MemoryStore(rows)
    async with await Ledger.over(store) as ledger:
        await ledger.conversation(conversation_key="taken")
        before = dict(rows.places)
        chat = await ledger.conversation()
        kept = dict(rows.places)
        with pytest.raises(InvalidInput):
            await chat.fork(conversation_key="taken")
    assert rows.places == kept
    assert len(kept) == len(before) + 1


async def test_search_places_stay_distinct_after_an_undone_removal() -> None:
    rows = Database()
    store = MemoryStore(rows)
    async with await Ledger.over(store) as ledger:
        first, second = [await ledger.conversation(title="Heron") for _ in range(2)]

        async def remove_and_fail(tables: MemoryTables, _: None) -> None:
            tables._remove(rows.places, ConversationId(first.id))
            raise InvalidInput("No.")

        with pytest.raises(InvalidInput):
            await store.transact(remove_and_fail, None, "local")  # type: ignore[arg-type]
        third = await ledger.conversation(title="Heron")
        hits = (await ledger.search("heron")).hits
    assert [hit.conversation.id for hit in hits] == [third.id, second.id, first.id]


CHAT = ConversationId("conv_01890000000070008000000000000000")


def add_changes(rows: Database, count: int) -> None:
    tables = memory_tables(rows)
    for _ in range(count):
        drive(
            tables.add_change(LiveChange(kind=ChangeKind.TURN_RUNNING, owner="ann", conversation=CHAT, at=1))
        )


def test_change_numbers_continue_after_an_undone_purge() -> None:
    rows = Database()
    add_changes(rows, 3)
    before = drive(memory_tables(rows).changes(None, 9))
    whole = memory_whole(rows)
    assert drive(whole.purge_changes(9, 9, 9)) == 2
    whole._log.undo()
    add_changes(rows, 1)
    found = drive(memory_tables(rows).changes(None, 9))
    assert found[:3] == before
    assert found[3].position == drive(whole.newest_position()) > before[2].position
