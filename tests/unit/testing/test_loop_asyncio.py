"""asyncio's own primitives keep their promises on the simulated loop, under every seed."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.unit.testing.simulation import run, simulation
from turnledger.testing.loop import SimulatedProcess

SEEDS = range(200)


# asyncio's promises


async def sleeps() -> None:
    loop = asyncio.get_running_loop()
    woken: list[tuple[int, float]] = []

    async def nap(seconds: int) -> None:
        await asyncio.sleep(seconds)
        woken.append((seconds, loop.time()))

    await asyncio.gather(*(nap(seconds) for seconds in (3, 1, 2)))
    assert woken == [(1, 1.0), (2, 2.0), (3, 3.0)]


async def timeouts() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.sleep(6)
    assert loop.time() == 5
    async with asyncio.timeout(5) as unused:
        await asyncio.sleep(4)
    assert not unused.expired()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 1)
    assert await asyncio.wait_for(asyncio.sleep(1, "slept"), 2) == "slept"
    assert loop.time() == 11


async def shields() -> None:
    async def work() -> str:
        await asyncio.sleep(10)
        return "worked"

    inner = asyncio.create_task(work())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.shield(inner)
    assert await inner == "worked"


async def gathers() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("failed")

    assert await asyncio.gather(*(asyncio.sleep(n % 3, n) for n in range(9))) == list(range(9))
    with pytest.raises(KeyError):
        await asyncio.gather(asyncio.sleep(1), fail())
    done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(n)) for n in (1, 2)], timeout=1.5)
    assert (len(done), len(pending)) == (1, 1)


async def events() -> None:
    event, seen = asyncio.Event(), []

    async def wait(name: int) -> None:
        await event.wait()
        seen.append(name)

    waiters = [asyncio.create_task(wait(name)) for name in range(5)]
    await asyncio.sleep(1)
    assert seen == []
    event.set()
    await asyncio.gather(*waiters)
    assert sorted(seen) == [0, 1, 2, 3, 4]


async def locks() -> None:
    lock, inside, total = asyncio.Lock(), 0, 0

    async def enter(impatient: bool) -> None:
        nonlocal inside, total
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.5 if impatient else None), lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                total += 1
                inside -= 1
                await asyncio.sleep(0.5)

    await asyncio.gather(*(enter(n % 2 == 1) for n in range(8)))
    assert not lock.locked()
    assert total >= 4


async def queues() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
    got: list[int] = []

    async def put() -> None:
        for n in range(20):
            await queue.put(n)

    async def get() -> None:
        while True:
            got.append(await queue.get())
            await asyncio.sleep(0)
            queue.task_done()

    getters = [asyncio.create_task(get()) for _ in range(3)]
    await put()
    await queue.join()
    for getter in getters:
        getter.cancel()
    await asyncio.gather(*getters, return_exceptions=True)
    assert got == list(range(20))


async def conditions_and_semaphores() -> None:
    condition, semaphore, running = asyncio.Condition(), asyncio.Semaphore(2), 0
    items: list[int] = []

    async def consume() -> None:
        nonlocal running
        async with condition:
            await condition.wait_for(lambda: items)
            items.pop()
        async with semaphore:
            running += 1
            assert running <= 2
            await asyncio.sleep(1)
            running -= 1

    consumers = [asyncio.create_task(consume()) for _ in range(5)]
    for n in range(5):
        async with condition:
            items.append(n)
            condition.notify()
    await asyncio.gather(*consumers)
    assert items == []


async def task_groups() -> None:
    cancelled = []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("failed")

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait("a"))
            group.create_task(wait("b"))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert sorted(cancelled) == ["a", "b"]


async def context_variables() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def child(number: int) -> None:
        variable.set(number)
        await asyncio.sleep(0)
        assert variable.get() == number

    await asyncio.gather(*map(child, range(1, 5)))
    assert variable.get() == 0


async def done_callbacks_run_before_the_awaiter() -> None:
    seen: list[str] = []
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _: seen.append("first"))
    task.add_done_callback(lambda _: seen.append("second"))
    await task
    assert seen == ["first", "second"]


async def cancelling_a_task_by_callback_keeps_its_place() -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(asyncio.sleep(1))
    await asyncio.sleep(0.5)
    seen: list[int] = []
    loop.call_soon(task.cancel)
    loop.call_soon(lambda: seen.append(task.cancelling()))
    await asyncio.sleep(0)
    assert seen == [1]


async def callbacks_run_in_the_order_of_registration() -> None:
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    async def noise() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    noises = [asyncio.create_task(noise()) for _ in range(5)]
    for number in range(10):
        loop.call_soon(seen.append, number)
        if number % 3 == 0:
            await asyncio.sleep(0)
    loop.call_later(0, seen.append, 10)
    await asyncio.gather(*noises)
    await asyncio.sleep(0)
    assert seen == list(range(11))


@pytest.mark.parametrize(
    "main",
    [
        sleeps,
        timeouts,
        shields,
        gathers,
        events,
        locks,
        queues,
        conditions_and_semaphores,
        task_groups,
        context_variables,
        done_callbacks_run_before_the_awaiter,
        cancelling_a_task_by_callback_keeps_its_place,
        callbacks_run_in_the_order_of_registration,
    ],
)
def test_asyncio_keeps_its_promises_under_every_seed(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    for seed in SEEDS:
        run(seed, main)
    gc.collect()


def test_a_dropped_async_generator_of_a_living_process_is_closed_in_that_process() -> None:
    with simulation() as loop:
        server = loop.process("server")
        closed_in: list[SimulatedProcess] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(1)
                closed_in.append(loop.current_process)

        async def serve() -> None:
            async for _ in numbers():
                break

        server.spawn(serve())
        loop.run_until_complete(asyncio.sleep(5))
        assert closed_in == [server]


def test_shutdown_asyncgens_closes_what_is_unfinished() -> None:
    with simulation() as loop:
        closed: list[bool] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                closed.append(True)

        unfinished = numbers()

        async def begin() -> None:
            assert await anext(unfinished) == 1

        loop.run_until_complete(begin())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        assert closed == [True]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_eager_tasks_run_at_once() -> None:
    with simulation() as loop:
        loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
        assert loop.get_task_factory() is not None

        async def instant() -> str:
            return "done"

        async def main() -> None:
            task = asyncio.create_task(instant(), name="eager")
            assert task.done()
            assert await asyncio.create_task(asyncio.sleep(1, "slept")) == "slept"

        loop.run_until_complete(main())
        assert loop.errors == []
