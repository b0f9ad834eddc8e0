"""The memory store: undo of failed transactions, limits, tombstones, and the check of its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.check.test_check import raw_id
from tests.unit.engine.populated_store import PopulatedStore, populate
from tests.unit.engine.stage import drive, memory_whole
from tests.unit.model.shapes import repeatable
from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    InvalidInput,
    Superseded,
)
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import ConversationState, Usage
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TokenId, TurnId
from turnledger.model.turn import Turn
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.stores.memory import whole as whole_store
from turnledger.stores.memory.database import MemoryRows, UndoLog
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    change,
    conversation,
    do,
    do_whole,
    ended_attempt,
    grow,
    insert_all,
    read,
    write,
)
from turnledger.testing.store_contract.rows.transactions import break_off
from turnledger.types import Rule


async def test_cancelled_transaction_is_undone() -> None:
    async def beat_and_exit(tables: Tables, _: None) -> None:
        await tables.beat(IDS.new(LeaseId))
        raise KeyboardInterrupt

    database = Database()
    with pytest.raises(KeyboardInterrupt):
        await MemoryStore(database).transact(beat_and_exit, None, "ann")
    assert database == Database()


# Bounds.


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def database() -> Database:
    return Database(max_conversations=2)


@pytest.fixture
async def ledger(clock: FakeClock, database: Database) -> AsyncIterator[Ledger]:
    async with await Ledger.over(MemoryStore(database), clock=clock, random=Random(1)) as opened:
        yield opened


async def run_turn(chat: Chat, clock: FakeClock) -> None:
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
    ledger: Ledger, clock: FakeClock
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


async def test_conversation_expired_by_a_failed_transaction_is_live_again(database: Database) -> None:
    store = MemoryStore(database)
    kept = await insert_all(store, [conversation(conversation_key=key) for key in "ab"])
    with pytest.raises(Superseded):
        await write(store, do("add_conversation", conversation(conversation_key="c")), break_off)
    assert list(database.conversations.values()) == kept
    assert (database.ended, database.changes) == ({}, {})


async def test_deleted_conversation_is_purged_for_room_before_another_expires(
    ledger: Ledger, clock: FakeClock
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


async def test_conversation_with_a_running_turn_is_not_expired_by_the_limit(
    ledger: Ledger, clock: FakeClock
) -> None:
    one, two = await ledger.conversation(), await ledger.conversation()
    async with one.turn("Hello") as turn:
        clock.advance(1)
        await ledger.conversation()
        assert await live(one, two) == [True, False]
        turn.emit("Hi")
    assert len(await one.turns()) == 1


async def test_conversation_limit_holds_again_once_no_turn_runs(
    ledger: Ledger, clock: FakeClock, database: Database
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


async def test_time_to_live_counts_from_the_last_turn(clock: FakeClock) -> None:
    store = MemoryStore(Database(ttl_ms=10_000))
    async with await Ledger.over(store, clock=clock, random=Random(1)) as ledger:
        chat = await ledger.conversation()
        clock.advance(8)
        await run_turn(chat, clock)
        clock.advance(9)
        assert await live(chat) == [True]
        clock.advance(1)
        assert await live(chat) == [False]


async def test_conversation_may_set_its_own_time_to_live(clock: FakeClock) -> None:
    store = MemoryStore(Database(ttl_ms=10_000))
    async with await Ledger.over(store, clock=clock, random=Random(1)) as ledger:
        long, short = await ledger.conversation(expires_after=60), await ledger.conversation()
        clock.advance(10)
        assert await live(long, short) == [True, False]


# Tombstones.


async def with_ended(count: int) -> Database:
    """Deleted conversations with three turns and a failed attempt each."""
    database = Database()
    store = MemoryStore(database)
    for made in await insert_all(store, [conversation() for _ in range(count)]):
        await grow(store, made.branch, 3)
        await write(store, do("add_attempt", ended_attempt(made)))
        await write(store, do("save_conversation", replace(made, state=ConversationState.PURGED)))
    return database


async def test_tombstones_beyond_the_limit_are_dropped_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_store, "KEPT_TOMBSTONES", 2)
    database = await with_ended(3)
    kept = list(database.conversations)[1:]
    await write(MemoryStore(database), do_whole("purge_ended", 100))
    assert list(database.conversations) == kept
    assert len(database.branches) == len(database.ended) == 2


async def test_dropped_tombstone_takes_all_its_rows_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_store, "KEPT_TOMBSTONES", 1)
    database = await with_ended(2)
    while (await write(MemoryStore(database), do_whole("purge_ended", 1)))[0]:
        pass
    assert len(database.conversations) == len(database.branches) == 1
    assert (database.turns, database.attempts) == ({}, {})


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


async def test_turns_whose_removal_is_undone_are_in_order_again() -> None:
    database = await with_ended(1)
    [line] = database.lines.values()
    before = list(line)
    with pytest.raises(Superseded):
        await write(MemoryStore(database), do_whole("purge_ended", 2), break_off)
    assert list(line) == before


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


async def test_change_numbers_continue_after_an_undone_purge() -> None:
    store = MemoryStore()
    await write(store, *(do("add_change", change()) for _ in range(3)))
    before = await read(store, do("changes", None, 9))
    with pytest.raises(Superseded):
        await write(store, do("purge_changes", 9, 9, 9), break_off)
    await write(store, do("add_change", change()))
    found = await read(store, do("changes", None, 9))
    assert found[:3] == before
    assert found[3].position == await read(store, do("newest_position")) > before[2].position
