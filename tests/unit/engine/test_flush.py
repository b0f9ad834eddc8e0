"""Only turns that take their time are flushed, about twice a second, while any run."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from tests.unit.engine.stage import BRANCH, branch, drive
from tests.unit.model.shapes import some_id
from tests.unit.testing.simulation import run
from turnledger import Ledger, Limits
from turnledger.engine.process import FlushRequest, flush
from turnledger.errors import Superseded
from turnledger.model.ids import TurnId
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import GatedStore

TURN, OTHER = some_id(TurnId, 1), some_id(TurnId, 2)


async def open_ledger(store: GatedStore) -> Ledger:
    limits = Limits(lease_time=100_000.0)
    return await Ledger.over(store, limits=limits, clock=FakeClock(), random=Random(1))


@pytest.mark.parametrize(("lasts", "flushes"), [(0.4, 0), (0.9, 1), (1.1, 2), (3.1, 6)])
def test_a_turn_is_flushed_about_twice_a_second_once_it_is_old_enough(lasts: float, flushes: int) -> None:
    async def main() -> None:
        store = GatedStore(MemoryStore())
        async with await open_ledger(store) as ledger:
            chat = await ledger.conversation()
            async with chat.turn("q") as turn:
                for _ in range(round(lasts * 10)):
                    turn.emit("x")
                    await asyncio.sleep(0.1)
            assert store.trips.count("flush") == flushes

    run(0, main)


def test_a_turn_that_began_since_the_last_look_is_passed_by() -> None:
    async def main() -> None:
        store = GatedStore(MemoryStore())
        async with await open_ledger(store) as ledger:
            async with (await ledger.conversation()).turn("long") as turn:
                turn.emit("x")
                await asyncio.sleep(0.7)
                async with (await ledger.conversation()).turn("short") as other:
                    other.emit("x")
                    await asyncio.sleep(0.4)
                assert store.trips.count("flush") == 1
                await asyncio.sleep(0.7)
            assert store.trips.count("flush") == 1

    run(0, main)


def test_a_turn_with_nothing_new_to_tell_is_not_flushed() -> None:
    async def main() -> None:
        store = GatedStore(MemoryStore())
        async with await open_ledger(store) as ledger:
            async with (await ledger.conversation()).turn("q") as turn:
                turn.emit("x")
                await asyncio.sleep(60)
            assert store.trips.count("flush") == 1

    run(0, main)


def test_the_timer_stops_when_nothing_runs_and_starts_again() -> None:
    async def main() -> None:
        store = GatedStore(MemoryStore())
        async with await open_ledger(store) as ledger:
            chat = await ledger.conversation()
            timers = []
            for _ in range(2):
                async with chat.turn("q") as turn:
                    turn.emit("x")
                    await asyncio.sleep(2)
                timer = ledger._process.flushing._timer
                assert timer is not None
                await asyncio.sleep(1)
                assert timer.done()
                timers.append(timer)
            assert timers[0] is not timers[1]
            assert store.trips.count("flush") == 2

    run(0, main)


async def test_what_goes_wrong_unforeseen_is_told_and_harms_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(*_: object) -> None:
        raise ZeroDivisionError

    async with await open_ledger(GatedStore(MemoryStore())) as ledger:
        chat = await ledger.conversation()
        async with chat.turn("q") as turn:
            turn.emit("x")
            store = ledger._process.store
            ledger._process.store = type("Broken", (), {"transact": breaks})()  # type: ignore[assignment]
            with caplog.at_level(logging.ERROR, "turnledger"):
                await ledger._process.flushing.flush()
            ledger._process.store = store
        assert len(caplog.records) == 1
        assert len(await chat.turns()) == 1


@pytest.mark.parametrize(("running", "fence"), [(None, 3), (OTHER, 3), (TURN, 2), (TURN, 4)])
def test_only_who_holds_the_lane_can_flush(running: TurnId | None, fence: int) -> None:
    tables = MemoryTables(Database())
    drive(tables.add_branch(branch(running=running, fence=3)))
    with pytest.raises(Superseded):
        drive(flush(tables, FlushRequest(BRANCH, TURN, fence, 0, b"chunk")))
    assert drive(tables.log_chunks(TURN, 0, 9)) == []


def test_a_repeated_flush_changes_nothing() -> None:
    tables = MemoryTables(Database())
    drive(tables.add_branch(branch(running=TURN, fence=3)))
    for chunk in (b"chunk", b"other"):
        drive(flush(tables, FlushRequest(BRANCH, TURN, 3, 0, chunk)))
    assert drive(tables.log_chunks(TURN, 0, 9)) == [b"chunk"]
