"""Events in this process: one emitted text, and readers elsewhere that writes wake up."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.stage import generated
from tests.unit.model.shapes import assistant, call
from tests.unit.testing.simulation import run
from turnledger import Ledger, Limits
from turnledger.engine.events.live_log import LOOSE, PIECE, STRIDE, EmittedText, EventSink, LiveLog
from turnledger.model import codec, event_log
from turnledger.model.event import Event, TextDelta, TurnFinished, TurnStarted
from turnledger.model.ids import TurnId
from turnledger.model.turn import AttemptState
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


@pytest.mark.parametrize("seed", range(generated.max_examples // 5))
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
            looks = store.operations.count("look")
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
        assert list(here._process.live_readers.values()) == [1]
        gate.set()
        await waiting
        assert [event.number for event in await reading] == [1, 2, 3, 4]
        assert (here._process.readers, here._process.live_readers, here._process.begin_waiters) == (0, {}, {})
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
            assert (ledger._process.readers, ledger._process.live_readers) == (0, {})
            assert not ledger._process.running[turn.id].live.has_listeners


@generated
@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=50) | st.sampled_from(["x" * PIECE, "yz" * PIECE]),
            st.none() | st.tuples(st.floats(0, 1), st.floats(0, 1)),
        ),
        max_size=40,
    )
)
def test_any_stretch_is_what_was_appended(steps: list[tuple[str, tuple[float, float] | None]]) -> None:
    text, plain = EmittedText(), ""
    for piece, asked in steps:
        text.append(piece)
        plain += piece
        assert text.length == len(plain)
        if asked is not None:
            start, stop = sorted(round(part * len(plain)) for part in asked)
            assert text.between(start, stop) == plain[start:stop]
            assert text.between(start, len(plain)) == plain[start:]
    assert text.between(0, text.length) == plain


def test_many_small_pieces_are_held_as_few() -> None:
    text = EmittedText()
    for _ in range(100_000):
        text.append("ab")
        if text.length % 1_000 == 0:
            text.between(text.length - 2, text.length)
    assert len(text._loose) <= LOOSE
    assert len(text._pieces) <= text.length // PIECE + 1


SMALL = Limits(reader_events=8, reader_bytes=200)


def live_log(on_event: EventSink | None = None, limits: Limits = SMALL) -> LiveLog:
    return LiveLog(EmittedText(), limits, on_event)


def say(live: LiveLog, text: str) -> None:
    live.text.append(text)
    live.record_text(text)


def wire(events: list[Event]) -> list[bytes]:
    return [codec.encode(event) for event in events]


@generated
@given(st.lists(st.integers(0, 300), max_size=60), st.integers(0, 60), st.integers(1, 70))
def test_any_reader_gets_what_the_sink_was_told(lengths: list[int], joins: int, limit: int) -> None:
    async def play() -> None:
        told: list[Event] = []
        live = live_log(told.append)
        for place, length in enumerate(lengths):
            if place == joins:
                live.attach()
            if length:
                say(live, "x" * length)
            else:
                live.record_item(call(f"c{place}"))
        for after in range(len(told) + 1):
            assert wire(live.since(after, limit)) == wire(told[after : after + limit])
        live.finish([assistant("so")], AttemptState.COMPLETED, None)
        assert isinstance(told[-1], TurnFinished)
        assert live.end is told[-1]
        for after in range(len(told) + 1):
            assert wire(live.since(after, limit)) == wire(told[after : after + limit])

    asyncio.run(play())


async def test_a_long_log_is_read_from_near_the_place_that_is_asked_for() -> None:
    live = live_log()
    for number in range(4 * STRIDE):
        say(live, str(number % 10))
    [event] = live.since(3 * STRIDE + 7, 1)
    assert (event.number, getattr(event, "text", "")) == (3 * STRIDE + 8, str((3 * STRIDE + 6) % 10))
    assert live._nearest(3 * STRIDE + 7)[0] == 3 * STRIDE + 1
    assert live.since(0, 1) == [TurnStarted(number=1)]


async def test_what_is_at_hand_is_bounded_in_number_and_bytes() -> None:
    live = live_log()
    live.attach()
    for _ in range(100):
        say(live, "x")
        assert len(live._recent) <= SMALL.reader_events
    for _ in range(100):
        say(live, "x" * 90)
        assert sum(len(getattr(each, "text", "")) for each in live._recent) <= SMALL.reader_bytes
    say(live, "x" * 1_000)
    assert live._recent == []
    [last] = live.since(live.count - 1, 5)
    assert getattr(last, "text", "") == "x" * 1_000


async def test_nothing_is_at_hand_while_nobody_reads() -> None:
    live = live_log()
    say(live, "x")
    live.attach()
    say(live, "y")
    assert len(live._recent) == 1
    live.detach()
    say(live, "z")
    assert live._recent == []
    assert not live.has_listeners


async def test_readers_are_woken_once_for_all_that_is_told_in_one_go() -> None:
    live = live_log()
    live.attach()
    woken: list[int] = []
    waits = asyncio.Event()

    async def reader() -> None:
        wakeup = live.wakeup
        assert wakeup is not None
        waits.set()
        await wakeup.wait()
        woken.append(live.count)

    tasks = [asyncio.create_task(reader()) for _ in range(3)]
    await waits.wait()
    for _ in range(50):
        say(live, "x")
    await asyncio.gather(*tasks)
    assert woken == [51, 51, 51]


async def test_readers_that_took_their_time_wait_for_the_next_wave() -> None:
    live = live_log()
    live.attach()
    loop = asyncio.get_running_loop()
    live._set_quiet_time(loop.time() - 10.0)
    say(live, "x")
    assert isinstance(live._pending_wake, asyncio.TimerHandle)
    assert live._pending_wake.when() > loop.time() + 10.0
    say(live, "y")
    assert live._is_wake_due
    live.finish((), AttemptState.COMPLETED, None)
    assert not isinstance(live._pending_wake, asyncio.TimerHandle)


async def test_who_is_asked_for_during_a_wave_comes_after_it() -> None:
    live = live_log()
    live.attach()
    live.wake_soon()
    live.wake()
    live.wake_soon()
    assert live._is_wake_due
    live._set_quiet_time(asyncio.get_running_loop().time())
    assert live._pending_wake is not None


async def test_chunks_are_the_log_in_parts() -> None:
    live = live_log()
    assert live.next_chunk() is None
    say(live, "Hel")
    live.record_item(call())
    first = live.next_chunk()
    say(live, "lo")
    second = live.next_chunk()
    assert live.next_chunk() is None
    assert (first.text, second.text) == ("Hel", "lo")
    assert first.log + second.log == bytes(live.packed)
    assert event_log.count_items(first.log) == 1


async def test_a_sink_that_breaks_at_the_end_keeps_nobody_from_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[Event] = []

    def sink(event: Event) -> None:
        told.append(event)
        if event.number > 1:
            raise ValueError("broken")

    live = live_log(sink)
    with caplog.at_level(logging.ERROR, "turnledger"):
        live.finish([assistant(), assistant()], AttemptState.COMPLETED, None)
    assert [event.number for event in told] == [1, 2, 3, 4]
    assert len(caplog.records) == 3
