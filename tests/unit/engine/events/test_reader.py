"""The live log of a running turn, and readers in this and other processes."""

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
def test_reader_in_another_process_receives_text_within_a_tenth_of_a_second_of_a_flush(seed: int) -> None:
    async def main() -> None:
        here, _, there, _ = await two_ledgers()
        chat = await here.conversation()
        same = await there.conversation(chat.id)
        loop = asyncio.get_running_loop()
        emitted_at: list[float] = []
        received: list[tuple[float, Event]] = []

        async def read(turn: TurnId) -> None:
            async for event in same.events(turn):
                received.append((loop.time(), event))

        async with chat.turn("q") as turn:
            reading = asyncio.create_task(read(turn.id))
            for _ in range(30):
                emitted_at.append(loop.time())
                turn.emit("x")
                await asyncio.sleep(0.1)
        await reading
        lags = [at - emitted_at[event.number - 2] for at, event in received if isinstance(event, TextDelta)]
        assert len(lags) == 30
        assert max(lags[10:]) <= 0.5 + 0.1
        assert isinstance(received[-1][1], TurnFinished)
        await here.close()
        await there.close()

    run(seed, main)


def test_waiting_reader_reads_the_store_only_on_hints() -> None:
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
            looks = store.operations.count("read_turn_log")
        await reading
        # Renewed leases and flushes are hints. There is no other reason to read.
        assert looks <= 12
        await here.close()
        await there.close()

    run(0, main)


def test_reader_of_a_queued_turn_follows_it_into_the_live_log() -> None:
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


async def test_reader_closed_early_releases_its_place_in_the_log() -> None:
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
def test_emitted_text_returns_any_range_as_appended(
    steps: list[tuple[str, tuple[float, float] | None]],
) -> None:
    text, plain = EmittedText(), ""
    for piece, span in steps:
        text.append(piece)
        plain += piece
        assert text.length == len(plain)
        if span is not None:
            start, stop = sorted(round(part * len(plain)) for part in span)
            assert text.between(start, stop) == plain[start:stop]
            assert text.between(start, len(plain)) == plain[start:]
    assert text.between(0, text.length) == plain


def test_emitted_text_holds_many_small_pieces_as_few() -> None:
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


def emit(live: LiveLog, text: str) -> None:
    live.text.append(text)
    live.record_text(text)


def wire(events: list[Event]) -> list[bytes]:
    return [codec.encode(event) for event in events]


@generated
@given(st.lists(st.integers(0, 300), max_size=60), st.integers(0, 60), st.integers(1, 70))
def test_live_log_returns_the_events_sent_to_the_sink(lengths: list[int], joins: int, limit: int) -> None:
    async def play() -> None:
        events: list[Event] = []
        live = live_log(events.append)
        for place, length in enumerate(lengths):
            if place == joins:
                live.attach()
            if length:
                emit(live, "x" * length)
            else:
                live.record_item(call(f"c{place}"))
        for after in range(len(events) + 1):
            assert wire(live.since(after, limit)) == wire(events[after : after + limit])
        live.finish([assistant("so")], AttemptState.COMPLETED, None)
        assert isinstance(events[-1], TurnFinished)
        assert live.end is events[-1]
        for after in range(len(events) + 1):
            assert wire(live.since(after, limit)) == wire(events[after : after + limit])

    asyncio.run(play())


async def test_live_log_is_read_from_the_checkpoint_nearest_to_the_requested_number() -> None:
    live, sent = live_log(), list[Event]()
    both = live_log(sent.append)
    for log in (live, both):
        log.record_opening(call("first"))
        log.record_opening(call("second"))
        for number in range(0, 4 * STRIDE, 3):
            emit(log, str(number % 10))
            log.record_arguments(0, str(number % 10))
            log.record_item(call(f"c{number}"))
    assert wire(live.since(3 * STRIDE + 7, 3)) == wire(sent[3 * STRIDE + 7 : 3 * STRIDE + 10])
    assert live._nearest(3 * STRIDE + 7).number == 3 * STRIDE + 1
    assert live.since(0, 1) == [TurnStarted(number=1)]


async def test_live_log_bounds_its_recent_events_in_number_and_bytes() -> None:
    live = live_log()
    live.attach()
    for _ in range(100):
        emit(live, "x")
        assert len(live._recent) <= SMALL.reader_events
    for _ in range(100):
        emit(live, "x" * 90)
        assert sum(len(getattr(each, "text", "")) for each in live._recent) <= SMALL.reader_bytes
    emit(live, "x" * 1_000)
    assert live._recent == []
    [last] = live.since(live.count - 1, 5)
    assert getattr(last, "text", "") == "x" * 1_000


async def test_live_log_without_readers_holds_no_recent_events() -> None:
    live = live_log()
    emit(live, "x")
    live.attach()
    emit(live, "y")
    assert len(live._recent) == 1
    live.detach()
    emit(live, "z")
    assert live._recent == []
    assert not live.has_listeners


async def test_live_log_wakes_its_readers_once_for_events_sent_together() -> None:
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
        emit(live, "x")
    await asyncio.gather(*tasks)
    assert woken == [51, 51, 51]


async def test_live_log_delays_the_next_wake_up_after_slow_readers_but_not_the_end() -> None:
    live = live_log()
    live.attach()
    loop = asyncio.get_running_loop()
    live._set_quiet_time(loop.time() - 10.0)
    emit(live, "x")
    assert isinstance(live._pending_wake, asyncio.TimerHandle)
    assert live._pending_wake.when() > loop.time() + 10.0
    emit(live, "y")
    assert live._is_wake_due
    live.finish((), AttemptState.COMPLETED, None)
    assert not isinstance(live._pending_wake, asyncio.TimerHandle)


async def test_live_log_notified_during_a_wake_up_wakes_its_readers_again() -> None:
    live = live_log()
    live.attach()
    live.wake_soon()
    live.wake()
    live.wake_soon()
    assert live._is_wake_due
    live._set_quiet_time(asyncio.get_running_loop().time())
    assert live._pending_wake is not None


async def test_live_log_chunks_join_to_the_whole_log() -> None:
    live = live_log()
    assert live.next_chunk() is None
    emit(live, "Hel")
    live.record_item(call())
    first = live.next_chunk()
    emit(live, "lo")
    second = live.next_chunk()
    assert live.next_chunk() is None
    assert (first.text, second.text) == ("Hel", "lo")
    assert first.log + second.log == bytes(live.packed)
    assert event_log.count_items(first.log) == 1


async def test_live_log_whose_sink_raises_at_the_end_still_sends_every_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Event] = []

    def sink(event: Event) -> None:
        events.append(event)
        if event.number > 1:
            raise ValueError("broken")

    live = live_log(sink)
    with caplog.at_level(logging.ERROR, "turnledger"):
        live.finish([assistant(), assistant()], AttemptState.COMPLETED, None)
    assert [event.number for event in events] == [1, 2, 3, 4]
    assert len(caplog.records) == 3
