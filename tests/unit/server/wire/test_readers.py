"""Who leaves last is noticed, once."""

import asyncio
from collections.abc import Iterator

import pytest

from turnledger.model.ids import TurnId
from turnledger.server.ops.counters import Audience, SharedBoard

TURN = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbca9")
OTHER = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbcaa")


def test_where_nobody_reads_it_is_done_at_once() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(OTHER)
    audience.when_gone(TURN, lambda: done.append("alone"))
    assert done == ["alone"]


def test_the_last_one_to_leave_does_it_once() -> None:
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


def test_what_is_over_is_forgotten() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(TURN)
    audience.when_gone(TURN, lambda: done.append("gone"))
    audience.forget(TURN)
    audience.leave(TURN)
    assert done == []


@pytest.fixture
def workers() -> Iterator[tuple[Audience, Audience, SharedBoard]]:
    """The audiences of two workers, that look again at once; and their supervisor's board."""
    board = SharedBoard.create(parts=2, cells=64)
    parts = [SharedBoard(board.descriptor, part) for part in range(2)]
    here, there = (Audience(part, look_every=0) for part in parts)
    yield here, there, board
    for part in parts:
        part.detach()
    board.close()


Workers = tuple[Audience, Audience, SharedBoard]


async def test_a_reader_at_another_worker_counts_until_it_leaves(workers: Workers) -> None:
    here, there, _ = workers
    gone = asyncio.Event()
    there.join(TURN)
    here.when_gone(TURN, gone.set)
    await looked(here)
    assert not gone.is_set()
    there.leave(TURN)
    await gone.wait()


async def test_a_reader_is_gone_with_its_worker(workers: Workers) -> None:
    here, there, board = workers
    gone = asyncio.Event()
    there.join(TURN)
    here.when_gone(TURN, gone.set)
    board.clear(1)
    await gone.wait()


async def test_the_last_one_may_be_here(workers: Workers) -> None:
    here, there, _ = workers
    done: list[str] = []
    here.join(TURN)
    there.join(TURN)
    here.when_gone(TURN, lambda: done.append("gone"))
    there.leave(TURN)
    assert done == []
    here.leave(TURN)
    assert done == ["gone"]


async def test_nobody_looks_for_a_turn_that_is_over(workers: Workers) -> None:
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
    """Several looks have been taken by now."""
    for _ in range(20):
        await asyncio.sleep(0)
