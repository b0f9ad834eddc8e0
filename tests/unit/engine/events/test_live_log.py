"""Emitted text is one text, however it came and however it is asked for.

The live log tells everybody the same, keeps little at hand, and wakes its readers in one go.
"""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import assistant, call, repeatable
from turnledger.engine.events.live_log import LOOSE, PIECE, STRIDE, EmittedText, EventSink, LiveLog
from turnledger.engine.limits import Limits
from turnledger.model import codec, event_log
from turnledger.model.attempt import AttemptState
from turnledger.model.event import Event, TurnFinished, TurnStarted


@repeatable
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
    live.tell_text(text)


def wire(events: list[Event]) -> list[bytes]:
    return [codec.encode(event) for event in events]


@repeatable
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
                live.tell_item(call(f"c{place}"))
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
    assert not live.is_heard


async def test_readers_are_woken_once_for_all_that_is_told_in_one_go() -> None:
    live = live_log()
    live.attach()
    woken: list[int] = []
    waits = asyncio.Event()

    async def reader() -> None:
        bell = live.bell
        assert bell is not None
        waits.set()
        await bell.wait()
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
    live._be_quiet(loop.time() - 10.0)
    say(live, "x")
    assert isinstance(live._wave, asyncio.TimerHandle)
    assert live._wave.when() > loop.time() + 10.0
    say(live, "y")
    assert live._is_asked_again
    live.finish((), AttemptState.COMPLETED, None)
    assert not isinstance(live._wave, asyncio.TimerHandle)


async def test_who_is_asked_for_during_a_wave_comes_after_it() -> None:
    live = live_log()
    live.attach()
    live.ring()
    live.wake()
    live.ring()
    assert live._is_asked_again
    live._be_quiet(asyncio.get_running_loop().time())
    assert live._wave is not None


async def test_chunks_are_the_log_in_parts() -> None:
    live = live_log()
    assert live.next_chunk() is None
    say(live, "Hel")
    live.tell_item(call())
    first = live.next_chunk()
    say(live, "lo")
    second = live.next_chunk()
    assert live.next_chunk() is None
    assert first is not None
    assert second is not None
    assert (first.text, second.text) == ("Hel", "lo")
    assert first.log + second.log == bytes(live.packed)
    assert event_log.items_told(first.log) == 1


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
