"""The audience of a turn: detection of its last reader, on this worker and on others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.unit.server.shared_counters import two_workers
from turnledger.model.ids import TurnId
from turnledger.server.ops.audience import Audience
from turnledger.server.ops.counters import SharedCounters

TURN = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbca9")
OTHER = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbcaa")


def test_audience_without_readers_calls_back_immediately() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(OTHER)
    audience.when_gone(TURN, lambda: done.append("alone"))
    assert done == ["alone"]


def test_audience_calls_back_once_when_the_last_reader_leaves() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(TURN)
    audience.join(TURN)
    audience.when_gone(TURN, lambda: done.append("gone"))
    audience.leave(TURN)
    assert (done, set(audience.turns)) == ([], {TURN})
    audience.leave(TURN)
    assert not audience.turns
    audience.join(TURN)
    audience.leave(TURN)
    assert done == ["gone"]


def test_audience_of_a_forgotten_turn_does_not_call_back() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(TURN)
    audience.when_gone(TURN, lambda: done.append("gone"))
    audience.forget(TURN)
    audience.leave(TURN)
    assert done == []


@pytest.fixture
def workers() -> Iterator[tuple[Audience, Audience, SharedCounters]]:
    """The audiences of two workers, which look again at once, and their supervisor's counters."""
    with two_workers() as (counters, parts):
        here, there = (Audience(part, poll_every=0) for part in parts)
        yield here, there, counters


Workers = tuple[Audience, Audience, SharedCounters]


async def test_audience_counts_readers_at_other_workers(workers: Workers) -> None:
    here, there, _ = workers
    gone = asyncio.Event()
    there.join(TURN)
    here.when_gone(TURN, gone.set)
    await looked(here)
    assert not gone.is_set()
    there.leave(TURN)
    await gone.wait()


async def test_audience_drops_readers_of_a_dead_worker(workers: Workers) -> None:
    here, there, counters = workers
    gone = asyncio.Event()
    there.join(TURN)
    here.when_gone(TURN, gone.set)
    counters.clear(1)
    await gone.wait()


async def test_audience_calls_back_when_the_last_reader_is_local(workers: Workers) -> None:
    here, there, _ = workers
    done: list[str] = []
    here.join(TURN)
    there.join(TURN)
    here.when_gone(TURN, lambda: done.append("gone"))
    there.leave(TURN)
    assert done == []
    here.leave(TURN)
    assert done == ["gone"]


async def test_audience_stops_polling_for_a_forgotten_turn(workers: Workers) -> None:
    here, there, _ = workers
    done: list[str] = []
    there.join(TURN)
    here.when_gone(TURN, lambda: done.append("gone"))
    here.forget(TURN)
    await looked(here)
    there.leave(TURN)
    await looked(here)
    assert (done, here._timer) == ([], None)


async def looked(audience: Audience) -> None:
    """Let the audience poll several times."""
    for _ in range(20):
        await asyncio.sleep(0)
