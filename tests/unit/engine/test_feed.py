"""The feed: one read for all followers, pages without gap or overlap, and no change lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.engine.stage import drive, memory_whole
from turnledger import Ledger, Limits
from turnledger.engine import feed
from turnledger.engine.feed import (
    ChangeReader,
    ResumeRequest,
    TailRequest,
    newest_position,
    read_tail,
    resume,
)
from turnledger.errors import StoreUnavailable
from turnledger.hosting import Host
from turnledger.model.change import LiveChange, Position
from turnledger.model.ids import ConversationId
from turnledger.stores.memory import Database, MemoryStore
from turnledger.stores.memory.whole import MemoryWholeStore
from turnledger.testing.gates import GatedStore, When
from turnledger.types import ChangeKind

LIMITS = Limits(lease_time=600.0, flush_every=6_000.0, followed_changes=8)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SHORTEST_PAUSE", 0.0)


@asynccontextmanager
async def opened(database: Database | None = None) -> AsyncIterator[tuple[Ledger, GatedStore]]:
    store = GatedStore(MemoryStore(database))
    async with await Ledger.over(store, limits=LIMITS) as ledger:
        yield ledger, store


async def kinds(following: ChangeReader, count: int) -> list[ChangeKind]:
    received: list[ChangeKind] = []
    async with asyncio.timeout(10):
        while len(received) < count:
            received += [change.kind for change in await following.next_batch()]
    return received


async def distributed_to(ledger: Ledger) -> None:
    """Wait until the feed has handed out everything there is."""
    there = await ledger.position()
    async with asyncio.timeout(10):
        while ledger._process.feed.distributed_to != there:
            await asyncio.sleep(0)


async def test_feed_reads_the_store_once_for_all_followers() -> None:
    async with opened() as (ledger, store):
        followers = [Host(ledger).follow(ledger) for _ in range(20)]
        for each in followers:
            each.__enter__()
            assert await kinds(each, 1) == [ChangeKind.START]
        store.operations.clear()
        await ledger.conversation()
        for each in followers:
            assert await kinds(each, 1) == [ChangeKind.CHAT_CREATED]
        assert store.operations.count("read_tail") <= 2
        assert store.operations.count("resume") == 0
        for each in followers:
            each.__exit__()


async def test_feed_without_followers_does_not_read_the_store() -> None:
    async with opened() as (ledger, store):
        with Host(ledger).follow(ledger) as following:
            await kinds(following, 1)
            assert ledger._process.store is not store
        assert ledger._process.store is store
        store.operations.clear()
        await ledger.conversation()
        assert "read_tail" not in store.operations


async def test_follower_that_falls_behind_reads_from_the_store() -> None:
    async with opened() as (ledger, store):
        with Host(ledger).follow(ledger) as following:
            await kinds(following, 1)
            for _ in range(20):
                await ledger.conversation()
                await distributed_to(ledger)
            store.operations.clear()
            assert await kinds(following, 20) == [ChangeKind.CHAT_CREATED] * 20
            assert "resume" in store.operations
            await ledger.conversation()
            assert await kinds(following, 1) == [ChangeKind.CHAT_CREATED]


async def test_change_made_during_a_store_read_is_received_once() -> None:
    async with opened() as (ledger, store):
        with (
            Host(ledger).follow(ledger, after=await ledger.position()) as following,
            store.hold(resume, When.AFTER) as gate,
        ):
            first = asyncio.create_task(following.next_batch())
            await gate.arrived()
            await ledger.conversation()
            await distributed_to(ledger)
            gate.release()
            assert [change.kind for change in await first] == [ChangeKind.CHAT_CREATED]
            await ledger.conversation()
            assert await kinds(following, 1) == [ChangeKind.CHAT_CREATED]


async def test_followers_that_reconnect_together_share_one_store_read() -> None:
    async with opened() as (ledger, store):
        start = await ledger.position()
        for _ in range(300):
            await ledger.conversation()
        store.operations.clear()
        followers = [Host(ledger).follow(ledger, after=start).__enter__() for _ in range(30)]
        received = await asyncio.gather(*(kinds(each, 300) for each in followers))
        assert [len(each) for each in received] == [300] * 30
        assert store.operations.count("resume") == 2
        late = Host(ledger).follow(ledger, after=start).__enter__()
        assert len(await kinds(late, 300)) == 300
        assert store.operations.count("resume") == 3
        for each in (*followers, late):
            each.__exit__()


async def test_follower_that_joins_late_does_not_receive_the_title_of_a_purged_chat() -> None:
    async with opened() as (ledger, _):
        start = await ledger.position()
        chat = await ledger.conversation(title="secret")
        for _ in range(300):
            await ledger.conversation()
        with (
            Host(ledger).follow(ledger, after=start) as following,
            Host(ledger).follow(ledger, after=start) as late,
        ):
            assert (await following.next_batch())[0].chat.title == "secret"
            await chat.delete(purge=True)
            await distributed_to(ledger)
            [first, *_] = await late.next_batch()
            assert first.conversation == chat.id
            assert first.chat.title is None


async def test_follower_cancelled_during_a_store_read_loses_no_change() -> None:
    async with opened() as (ledger, store):
        start = await ledger.position()
        await ledger.conversation()
        with Host(ledger).follow(ledger, after=start) as following:
            with store.hold(resume, When.AFTER) as gate:
                first = asyncio.create_task(following.next_batch())
                await gate.arrived()
                await ledger.conversation()
                await distributed_to(ledger)
                first.cancel()
                await asyncio.wait((first,))
            assert await kinds(following, 2) == [ChangeKind.CHAT_CREATED] * 2


async def test_follower_that_joins_during_a_feed_read_misses_no_change() -> None:
    async with opened() as (ledger, store):
        with (
            Host(ledger).follow(ledger.for_owner("ann")) as first,
            Host(ledger).follow(ledger.for_owner("bob")) as second,
        ):
            await kinds(first, 1)
            with store.hold(read_tail, When.AFTER) as gate:
                await ledger.for_owner("ann").conversation()
                await gate.arrived()
                await kinds(second, 1)
                await ledger.for_owner("bob").conversation()
            assert await kinds(second, 1) == [ChangeKind.CHAT_CREATED]
            assert await kinds(first, 1) == [ChangeKind.CHAT_CREATED]


async def test_feed_with_an_unavailable_store_delivers_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LONGEST_PAUSE", 0.01)
    async with opened() as (ledger, store):
        store.refuse(newest_position, StoreUnavailable(), times=2)
        with Host(ledger).follow(ledger, after=await _position_of(ledger)) as following:
            store.refuse(read_tail, StoreUnavailable(), times=3)
            await ledger.conversation()
            assert await kinds(following, 1) == [ChangeKind.CHAT_CREATED]
            await ledger.conversation()
            assert await kinds(following, 1) == [ChangeKind.CHAT_CREATED]


async def _position_of(ledger: Ledger) -> str:
    while True:
        try:
            return await ledger.position()
        except StoreUnavailable:
            continue


async def test_follower_whose_store_read_fails_keeps_its_position() -> None:
    async with opened() as (ledger, store):
        start = await ledger.position()
        await ledger.conversation()
        with Host(ledger).follow(ledger, after=start) as following:
            store.refuse(resume, StoreUnavailable())
            with pytest.raises(StoreUnavailable):
                await following.next_batch()
            assert await kinds(following, 1) == [ChangeKind.CHAT_CREATED]


async def test_follower_behind_by_changes_of_others_only_receives_no_gap() -> None:
    """The changes in between are purged, but none of them concerned this owner."""
    database = Database()
    async with opened(database) as (ledger, _):
        with Host(ledger).follow(ledger.for_owner("ann")) as following:
            await kinds(following, 1)
            for _ in range(5):
                await ledger.for_owner("bob").conversation()
            await distributed_to(ledger)
            for number in list(database.changes)[:-1]:
                del database.changes[number]
            for _ in range(20):
                await ledger.for_owner("ann").conversation()
                await distributed_to(ledger)
            assert await kinds(following, 20) == [ChangeKind.CHAT_CREATED] * 20


async def test_follower_that_missed_removed_changes_receives_a_gap() -> None:
    database = Database()
    async with opened(database) as (ledger, _):
        with Host(ledger).follow(ledger) as following:
            await kinds(following, 1)
            for _ in range(20):
                await ledger.conversation()
                await distributed_to(ledger)
            for number in list(database.changes)[:-1]:
                del database.changes[number]
            assert await kinds(following, 1) == [ChangeKind.GAP]
            await ledger.conversation()
            assert await kinds(following, 1) == [ChangeKind.CHAT_CREATED]


async def test_follower_woken_without_changes_advances_its_position() -> None:
    async with opened() as (ledger, _):
        with Host(ledger).follow(ledger.for_owner("ann")) as following:
            await kinds(following, 1)
            await ledger.for_owner("bob").conversation()
            await distributed_to(ledger)
            following.wake()
            assert await following.next_batch() == ()
            assert following.position == await ledger.position()


CHAT = ConversationId("conv_01890000000070008000000000000000")


@pytest.fixture
def whole() -> MemoryWholeStore:
    whole = memory_whole()
    for number in range(5):
        owner = "bob" if number == 2 else "ann"
        change = LiveChange(kind=ChangeKind.TURN_RUNNING, owner=owner, conversation=CHAT, at=number)
        drive(whole.of(owner).add_change(change))
    return whole


START = drive(newest_position(memory_whole()))


def test_resume_pages_join_without_gap_or_overlap(whole: MemoryWholeStore) -> None:
    tables = whole.of("ann")
    first = drive(resume(tables, ResumeRequest("ann", START, 3)))
    assert ([change.at for change in first.changes], first.has_more) == ([0, 1, 3], True)
    last = drive(resume(tables, ResumeRequest("ann", first.through, 3)))
    assert ([change.at for change in last.changes], last.has_more) == ([4], False)
    assert last.through == drive(newest_position(tables))


@pytest.mark.parametrize("after", ["", "0", "6", f"{6:015x}", "g" * 15, "三", "-1"])
def test_position_of_no_change_is_reported_as_unknown(whole: MemoryWholeStore, after: str) -> None:
    for page in (
        drive(resume(whole.of("ann"), ResumeRequest("ann", Position(after), 3))),
        drive(read_tail(whole, TailRequest(Position(after), frozenset({"ann"}), 3))),
    ):
        assert (page.changes, page.is_whole) == ([], False)
        assert page.through == drive(newest_position(whole))


def test_tail_continues_after_the_last_change_it_read(whole: MemoryWholeStore) -> None:
    owners = frozenset({"bob"})
    first = drive(read_tail(whole, TailRequest(START, owners, 2)))
    assert (first.changes, first.has_more) == ([], True)
    assert first.through == drive(whole.of("ann").changes(None, 2))[-1].position
    second = drive(read_tail(whole, TailRequest(first.through, owners, 99)))
    assert ([change.owner for change in second.changes], second.has_more) == (["bob"], False)
    third = drive(read_tail(whole, TailRequest(second.through, owners, 99)))
    assert (third.changes, third.through) == ([], second.through)
