"""Readers who are woken at once look once; nobody goes by a look that began before they were woken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger import Chat, Ledger, Limits
from turnledger.engine.attempt.stored_events import LookRequest, Over, Runs, look
from turnledger.errors import StoreUnavailable
from turnledger.model.event import Event, TextDelta
from turnledger.model.ids import TurnId
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import GatedStore

pytestmark = pytest.mark.anyio

READERS = 50


@pytest.fixture
def stores() -> list[GatedStore]:
    database = Database()
    return [GatedStore(MemoryStore(database)) for _ in range(2)]


@pytest.fixture
async def ledgers(stores: list[GatedStore]) -> AsyncIterator[list[Ledger]]:
    opened = [await Ledger.over(store, limits=Limits(flush_every=6_000.0)) for store in stores]
    yield opened
    for ledger in opened:
        await ledger.close()


async def read(chat: Chat, turn: TurnId) -> list[Event]:
    return [event async for event in chat.events(turn)]


async def idle() -> None:
    """Let everybody come to rest: the memory store answers within a few steps of the loop."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_all_readers_of_a_turn_look_once_for_each_wake(
    ledgers: list[Ledger], stores: list[GatedStore]
) -> None:
    chat = await ledgers[0].conversation()
    same = await ledgers[1].conversation(chat.id)
    async with chat.turn("q") as turn:
        reading = [asyncio.create_task(read(same, turn.id)) for _ in range(READERS)]
        await idle()
        looks = []
        for word in "abc":
            before = stores[1].trips.count("look")
            turn.emit(word)
            await ledgers[0]._process.flushing.flush()
            await idle()
            looks.append(stores[1].trips.count("look") - before)
        # One that finds what was told, and one that finds no more.
        assert looks == [2, 2, 2]
        reading[0].cancel()
    heard = await asyncio.gather(*reading, return_exceptions=True)
    assert isinstance(heard[0], asyncio.CancelledError)
    assert all(each == heard[1] for each in heard[1:])
    assert isinstance(heard[1], list)
    assert [event.text for event in heard[1] if isinstance(event, TextDelta)] == ["a", "b", "c"]


async def test_who_asks_while_a_look_is_taken_gets_one_of_their_own(
    ledgers: list[Ledger], stores: list[GatedStore]
) -> None:
    chat, looks = await ledgers[0].conversation(), ledgers[1]._process.looks
    async with chat.turn("q") as turn:
        turn.emit("a")
        request = LookRequest(chat.owner, chat.id, turn.id, 0, 0, 1)
        with stores[1].hold(look) as gate:
            early = asyncio.create_task(looks.take(request))
            await gate.arrived()
            late = asyncio.create_task(looks.take(request))
            await gate.arrived(2)
        assert isinstance(await early, Runs)
        assert isinstance(await late, Runs)
        assert await early is not await late
    assert isinstance(await looks.take(request), Over)


async def test_who_is_cancelled_leaves_the_others_their_look(
    ledgers: list[Ledger], stores: list[GatedStore]
) -> None:
    chat, looks = await ledgers[0].conversation(), ledgers[1]._process.looks
    async with chat.turn("q") as turn:
        turn.emit("a")
        request = LookRequest(chat.owner, chat.id, turn.id, 0, 0, 1)
        first, second = (asyncio.create_task(looks.take(request)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert isinstance(await second, Runs)
        assert first.cancelled()
        stores[1].refuse(look)
        for each in [asyncio.create_task(looks.take(request)) for _ in range(2)]:
            with pytest.raises(StoreUnavailable):
                await each
