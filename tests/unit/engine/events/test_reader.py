"""Readers elsewhere are woken by what is written, not by a clock; and leave nothing behind."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.unit.testing.simulation import run
from turnledger import Ledger, Limits
from turnledger.errors import TurnNotFound
from turnledger.model.event import Event, TextDelta, TurnFinished
from turnledger.model.ids import TurnId
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import GatedStore

LIMITS = Limits(lease_time=400.0)


async def two_ledgers() -> tuple[Ledger, GatedStore, Ledger, GatedStore]:
    database = Database()
    stores = [GatedStore(MemoryStore(database)) for _ in range(2)]
    ledgers = [
        await Ledger.over(store, limits=LIMITS, clock=FakeClock(), random=Random(number))
        for number, store in enumerate(stores)
    ]
    return ledgers[0], stores[0], ledgers[1], stores[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_elsewhere_hears_within_a_tenth_of_a_second_of_a_flush(seed: int) -> None:
    async def main() -> None:
        here, _, there, _ = await two_ledgers()
        chat = await here.conversation()
        same = await there.conversation(chat.id)
        loop = asyncio.get_running_loop()
        said: list[float] = []
        heard: list[tuple[float, Event]] = []

        async def read(turn: TurnId) -> None:
            async for event in same.events(turn):
                heard.append((loop.time(), event))

        async with chat.turn("q") as turn:
            reading = asyncio.create_task(read(turn.id))
            for _ in range(30):
                said.append(loop.time())
                turn.emit("x")
                await asyncio.sleep(0.1)
        await reading
        lags = [at - said[event.number - 2] for at, event in heard if isinstance(event, TextDelta)]
        assert len(lags) == 30
        assert max(lags[10:]) <= 0.5 + 0.1
        assert isinstance(heard[-1][1], TurnFinished)
        await here.close()
        await there.close()

    run(seed, main)


def test_a_reader_who_waits_does_not_look_all_the_time() -> None:
    async def main() -> None:
        here, _, there, store = await two_ledgers()
        chat = await here.conversation()
        same = await there.conversation(chat.id)

        async def read(turn: TurnId) -> list[Event]:
            return [event async for event in same.events(turn)]

        async with chat.turn("q") as turn:
            turn.emit("x")
            reading = asyncio.create_task(read(turn.id))
            await asyncio.sleep(300)
            looks = store.trips.count("look")
        await reading
        # Leases are renewed, and flushes come: each is a hint. Nothing else is a reason to look.
        assert looks <= 12
        await here.close()
        await there.close()

    run(0, main)


def test_a_reader_is_moved_along_with_a_queued_turn_in_its_own_process() -> None:
    async def main() -> None:
        here, _, there, _ = await two_ledgers()
        chat = await here.conversation()

        async def queued(gate: asyncio.Event) -> None:
            async with block as turn:
                turn.emit("x")
                await gate.wait()

        async def read() -> list[Event]:
            return [event async for event in chat.events(block.id)]

        block = chat.turn("second")
        gate = asyncio.Event()
        async with chat.turn("first") as turn:
            turn.emit("x")
            waiting = asyncio.create_task(queued(gate))
            await asyncio.sleep(1)
            reading = asyncio.create_task(read())
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        assert list(here._process.listened.values()) == [1]
        gate.set()
        await waiting
        assert [event.number for event in await reading] == [1, 2, 3, 4]
        assert (here._process.readers, here._process.listened, here._process.awaited) == (0, {}, {})
        await here.close()
        await there.close()

    run(0, main)


async def test_a_reader_that_stops_early_leaves_nothing_behind() -> None:
    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation()
        async with chat.turn("q") as turn:
            turn.emit("x")
            events = chat.events(turn.id)
            assert (await anext(events)).number == 1
            assert ledger._process.readers == 1
            await events.aclose()  # type: ignore[attr-defined]
            assert (ledger._process.readers, ledger._process.listened) == (0, {})
            assert not turn.live.is_heard


async def test_an_error_leaves_nothing_behind() -> None:
    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation()
        with pytest.raises(TurnNotFound):
            await anext(chat.events("turn_000000000001700080000000000000ff"))
        assert ledger._process.readers == 0
