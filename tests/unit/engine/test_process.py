"""One process: its event loop, its flushes, and the reads its readers share."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.engine.stage import BRANCH, drive, lane_tables
from tests.unit.model.shapes import some_id
from tests.unit.testing.simulation import run
from turnledger import Ledger, Limits, RunningTurn
from turnledger.chat import Chat
from turnledger.engine.attempt.stored_events import (
    EndedTurnLog,
    RunningTurnLog,
    TurnLogRequest,
    read_turn_log,
)
from turnledger.engine.process import FlushRequest, flush
from turnledger.errors import LedgerElsewhere, StoreUnavailable, Superseded
from turnledger.model.event import Event, TextDelta
from turnledger.model.ids import TurnId
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import GatedStore
from turnledger.testing.store_contract.stage import expect_refusal

GUARD = 60.0
"""Seconds after which a call that should have been refused is given up."""


@pytest.fixture(params=["memory:", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chats.db" if request.param == "sqlite" else "memory:"


class Home:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def home() -> Iterator[Home]:
    home = Home()
    yield home
    home.end()


async def answer(turn: RunningTurn) -> None:
    turn.emit("yes")


async def close(ledger: Ledger, chat: Chat) -> None:
    await ledger.close()


async def take_turn(ledger: Ledger, chat: Chat) -> None:
    await chat.run(answer, "q")


async def read_turns(ledger: Ledger, chat: Chat) -> None:
    await chat.turns()


async def stop(ledger: Ledger, chat: Chat) -> None:
    await chat.stop()


async def follow(ledger: Ledger, chat: Chat) -> None:
    await anext(ledger.changes())


async def make(ledger: Ledger, chat: Chat) -> None:
    await ledger.conversation()


USES: list[Callable[[Ledger, Chat], Awaitable[None]]] = [take_turn, read_turns, stop, follow, make, close]


def test_ledger_used_on_another_loop_refuses_and_writes_nothing(url: str, home: Home) -> None:
    ledger = home.run(Ledger.open(url))
    chat = home.run(ledger.conversation())

    async def elsewhere() -> None:
        for use in USES:
            await expect_refusal(use.__name__, use(ledger, chat), LedgerElsewhere, "Open one in each loop")

    asyncio.run(elsewhere())
    home.run(chat.run(answer, "here"))
    assert [turn.input[0].text for turn in home.run(chat.turns())] == ["here"]
    assert home.run(chat.attempts()) == []
    home.run(ledger.close())


def test_events_of_a_turn_that_runs_on_another_loop_are_refused(url: str, home: Home) -> None:
    ledger = home.run(Ledger.open(url))
    chat = home.run(ledger.conversation())
    turn = home.run(begin(chat))

    async def elsewhere() -> None:
        with pytest.raises(LedgerElsewhere):
            await anext(chat.events(turn.id))

    asyncio.run(elsewhere())
    home.run(ledger.close())


async def begin(chat: Chat) -> RunningTurn:
    return await chat.turn("q").__aenter__()


def test_ledger_of_a_closed_loop_refuses_calls_on_the_next_loop(url: str) -> None:
    async def open_ledger() -> tuple[Ledger, Chat]:
        ledger = await Ledger.open(url)
        return ledger, await ledger.conversation()

    _open, chat = asyncio.run(open_ledger())

    async def elsewhere() -> None:
        with pytest.raises(LedgerElsewhere):
            await chat.run(answer, "q")

    asyncio.run(elsewhere())


FORKS = """
import asyncio, os, signal, sys
from turnledger import Ledger

async def answer(turn):
    turn.emit("yes")

async def use(work):
    try:
        await work()
    except Exception as problem:
        print(type(problem).__name__, problem, flush=True)
    else:
        print("worked", flush=True)

async def main(url):
    ledger = await Ledger.open(url)
    chat = await ledger.conversation()
    await chat.run(answer, "before")
    child = os.fork()
    if not child:
        signal.alarm(50)  # a child that hangs must not stay
        asyncio._set_running_loop(None)
        asyncio.run(use(lambda: chat.run(answer, "in the child")))
        asyncio.run(use(lambda: chat.turns()))
        asyncio.run(use(ledger.close))
        asyncio.run(use(lambda: Ledger.open(url)))
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    await chat.run(answer, "after")
    print([turn.input[0].text for turn in await chat.turns()], flush=True)
    await ledger.close()
    child = os.fork()
    if not child:
        asyncio._set_running_loop(None)
        asyncio.run(use(lambda: Ledger.open(url)))
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)

for url in sys.argv[1:]:
    asyncio.run(main(url))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs os.fork")
def test_ledger_used_after_a_fork_refuses_and_writes_nothing(tmp_path: Path) -> None:
    script = [sys.executable, "-W", "ignore", "-c", FORKS, "memory:", f"sqlite:///{tmp_path}/chats.db"]
    ran = subprocess.run(script, capture_output=True, text=True, timeout=GUARD, check=True)
    expect_refusal = "LedgerElsewhere This ledger was opened before os.fork(). Open one in each process"
    lines = ran.stdout.splitlines()
    memory, sqlite = lines[:6], lines[6:]
    for output in (memory, sqlite):
        assert all(line.startswith(expect_refusal) for line in output[:3]), ran.stdout
        assert output[4:] == ["['before', 'after']", "worked"], ran.stdout
    assert memory[3] == "worked"
    assert sqlite[3].startswith("LedgerElsewhere")
    assert "Fork first, or use spawn" in sqlite[3]


TURN, OTHER = some_id(TurnId, 1), some_id(TurnId, 2)


async def open_ledger(store: GatedStore) -> Ledger:
    limits = Limits(lease_time=100_000.0)
    return await Ledger.over(store, limits=limits, clock=FakeClock(), random=Random(1))


def simulate(story: Callable[[Ledger, GatedStore], Awaitable[None]]) -> None:
    """Run a story in simulated time."""

    async def main() -> None:
        store = GatedStore(MemoryStore())
        async with await open_ledger(store) as ledger:
            await story(ledger, store)

    run(0, main)


@pytest.mark.parametrize(("lasts", "flushes"), [(0.4, 0), (0.9, 1), (1.1, 2), (3.1, 6)])
def test_flush_runs_about_twice_a_second_once_the_turn_is_old_enough(lasts: float, flushes: int) -> None:
    async def story(ledger: Ledger, store: GatedStore) -> None:
        chat = await ledger.conversation()
        async with chat.turn("q") as turn:
            for _ in range(round(lasts * 10)):
                turn.emit("x")
                await asyncio.sleep(0.1)
        assert store.operations.count("flush") == flushes

    simulate(story)


def test_flush_skips_a_turn_that_began_since_the_last_round() -> None:
    async def story(ledger: Ledger, store: GatedStore) -> None:
        async with (await ledger.conversation()).turn("long") as turn:
            turn.emit("x")
            await asyncio.sleep(0.7)
            async with (await ledger.conversation()).turn("short") as other:
                other.emit("x")
                await asyncio.sleep(0.4)
            assert store.operations.count("flush") == 1
            await asyncio.sleep(0.7)
        assert store.operations.count("flush") == 1

    simulate(story)


def test_flush_skips_a_turn_without_new_events() -> None:
    async def story(ledger: Ledger, store: GatedStore) -> None:
        async with (await ledger.conversation()).turn("q") as turn:
            turn.emit("x")
            await asyncio.sleep(60)
        assert store.operations.count("flush") == 1

    simulate(story)


def test_flush_timer_stops_without_turns_and_starts_again() -> None:
    async def story(ledger: Ledger, store: GatedStore) -> None:
        chat = await ledger.conversation()
        timers = []
        for _ in range(2):
            async with chat.turn("q") as turn:
                turn.emit("x")
                await asyncio.sleep(2)
            timer = ledger._process.flusher._timer
            assert timer is not None
            await asyncio.sleep(1)
            assert timer.done()
            timers.append(timer)
        assert timers[0] is not timers[1]
        assert store.operations.count("flush") == 2

    simulate(story)


async def test_flush_that_raises_unexpectedly_is_logged_and_leaves_the_turn_unharmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks(*_: object) -> None:
        raise ZeroDivisionError

    async with await open_ledger(GatedStore(MemoryStore())) as ledger:
        chat = await ledger.conversation()
        async with chat.turn("q") as turn:
            turn.emit("x")
            store = ledger._process.store
            ledger._process.store = type("Broken", (), {"transact": breaks})()  # type: ignore[assignment]
            with caplog.at_level(logging.ERROR, "turnledger"):
                await ledger._process.flusher.flush()
            ledger._process.store = store
        assert len(caplog.records) == 1
        assert len(await chat.turns()) == 1


@pytest.mark.parametrize(("running", "fence"), [(None, 3), (OTHER, 3), (TURN, 2), (TURN, 4)])
def test_flush_without_holding_the_lane_raises_superseded(running: TurnId | None, fence: int) -> None:
    tables = lane_tables(running=running, fence=3)
    with pytest.raises(Superseded):
        drive(flush(tables, FlushRequest(BRANCH, TURN, fence, 0, b"chunk")))
    assert drive(tables.log_chunks(TURN, 0, 9)) == []


def test_flush_repeated_for_one_chunk_changes_nothing() -> None:
    tables = lane_tables(running=TURN, fence=3)
    for chunk in (b"chunk", b"other"):
        drive(flush(tables, FlushRequest(BRANCH, TURN, 3, 0, chunk)))
    assert drive(tables.log_chunks(TURN, 0, 9)) == [b"chunk"]


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
    """Wait until no task is active: the memory store answers within a few steps of the loop."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_readers_of_one_turn_share_each_read_of_the_store(
    ledgers: list[Ledger], stores: list[GatedStore]
) -> None:
    chat = await ledgers[0].conversation()
    same = await ledgers[1].conversation(chat.id)
    async with chat.turn("q") as turn:
        reading = [asyncio.create_task(read(same, turn.id)) for _ in range(READERS)]
        await idle()
        looks = []
        for word in "abc":
            before = stores[1].operations.count("read_turn_log")
            turn.emit(word)
            await ledgers[0]._process.flusher.flush()
            await idle()
            looks.append(stores[1].operations.count("read_turn_log") - before)
        # One read finds the text, and one finds no more.
        assert looks == [2, 2, 2]
        reading[0].cancel()
    results = await asyncio.gather(*reading, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(each == results[1] for each in results[1:])
    assert isinstance(results[1], list)
    assert [event.text for event in results[1] if isinstance(event, TextDelta)] == ["a", "b", "c"]


async def test_reader_that_asks_during_a_read_gets_a_later_read(
    ledgers: list[Ledger], stores: list[GatedStore]
) -> None:
    chat, looks = await ledgers[0].conversation(), ledgers[1]._process.log_reads
    async with chat.turn("q") as turn:
        turn.emit("a")
        request = TurnLogRequest(chat.owner, chat.id, turn.id, 0, 0, 1)
        with stores[1].hold(read_turn_log) as gate:
            early = asyncio.create_task(looks.take(request))
            await gate.arrived()
            late = asyncio.create_task(looks.take(request))
            await gate.arrived(2)
        assert isinstance(await early, RunningTurnLog)
        assert isinstance(await late, RunningTurnLog)
        assert await early is not await late
    assert isinstance(await looks.take(request), EndedTurnLog)


async def test_reader_cancelled_during_a_shared_read_leaves_it_to_the_others(
    ledgers: list[Ledger], stores: list[GatedStore]
) -> None:
    chat, looks = await ledgers[0].conversation(), ledgers[1]._process.log_reads
    async with chat.turn("q") as turn:
        turn.emit("a")
        request = TurnLogRequest(chat.owner, chat.id, turn.id, 0, 0, 1)
        first, second = (asyncio.create_task(looks.take(request)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert isinstance(await second, RunningTurnLog)
        assert first.cancelled()
        stores[1].refuse(read_turn_log)
        for each in [asyncio.create_task(looks.take(request)) for _ in range(2)]:
            with pytest.raises(StoreUnavailable):
                await each
