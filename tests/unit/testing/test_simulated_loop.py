"""The simulated loop: seeds replay, time is virtual, and asyncio primitives behave as specified."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.unit.testing.simulation import forbidden, run, simulation
from turnledger.testing.simulated_loop import Deadlock, Livelock, SimulatedLoop, SimulatedProcess

SEEDS = range(200)


# Seeds


def trace_of(seed: int | random.Random, **options: Any) -> list[str]:
    """A log of every step of a busy simulation: processes, tasks, equal timers, a kill and a pause."""
    log: list[str] = []
    with simulation(seed, **options) as loop:

        def note(what: str) -> None:
            task = asyncio.current_task()
            log.append(f"{loop.steps} {loop.time()} {task.get_name() if task else '-'} {what}")

        async def work(lock: asyncio.Lock, name: str) -> None:
            for turn in range(4):
                async with lock:
                    note(f"{name} {turn}")
                    await asyncio.sleep(turn % 2)
                loop.call_later(1, note, f"timer of {name}")
                await asyncio.sleep(0)

        async def main() -> None:
            processes = [loop.process(name) for name in "abc"]
            for process in processes:
                lock = asyncio.Lock()
                for number in range(3):
                    process.spawn(work(lock, f"{process.name}{number}"))
            await asyncio.sleep(2)
            processes[0].kill()
            processes[1].pause(3)
            await asyncio.sleep(30)

        loop.run_until_complete(main())
    return log


def test_schedule_of_one_seed_is_reproducible() -> None:
    for seed in range(20):
        assert trace_of(seed) == trace_of(seed)
    assert trace_of(3) == trace_of(random.Random(3))


def test_schedule_does_not_depend_on_memory_addresses() -> None:
    def cancellations() -> list[int]:
        order: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                order.append(number)

        async def main() -> None:
            done, pending = await asyncio.wait([asyncio.create_task(wait(n)) for n in range(20)], timeout=1)
            assert not done
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1), asyncio.TaskGroup() as group:
                    for number in range(20):
                        group.create_task(wait(number))

        run(5, main)
        return order

    ballast = []
    orders = set()
    for size in range(30):
        orders.add(tuple(cancellations()))
        ballast.append([bytearray(n) for n in range(size * 7)])
    assert len(orders) == 1


def test_schedules_of_different_seeds_differ() -> None:
    assert len({tuple(trace_of(seed)) for seed in range(20)}) == 20


def test_schedule_does_not_depend_on_the_hash_seed() -> None:
    script = (
        "import sys, importlib.util as u\n"
        f"spec = u.spec_from_file_location('t', {__file__!r})\n"
        "t = u.module_from_spec(spec); sys.modules['t'] = t; spec.loader.exec_module(t)\n"
        "print(t.trace_of(11))"
    )
    path = os.pathsep.join(sys.path)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert outputs == {f"{trace_of(11)}\n"}


def lost_updates(seed: int) -> int:
    counter = 0

    async def increment() -> None:
        nonlocal counter
        await asyncio.sleep(0)
        read = counter
        await asyncio.sleep(0)
        counter = read + 1

    async def late() -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        await increment()

    async def main() -> int:
        await asyncio.gather(increment(), late())
        return 2 - counter

    return int(run(seed, main))


def test_seeds_expose_a_lost_update_in_some_schedules_only() -> None:
    assert {lost_updates(seed) for seed in SEEDS} == {0, 1}


def test_loop_without_disorder_runs_one_process_first_in_first_out() -> None:
    for seed in range(20):
        order: list[int] = []

        async def append(number: int, order: list[int] = order) -> None:
            for _ in range(2):
                order.append(number)
                await asyncio.sleep(0)

        async def main(append: Callable[[int], Coroutine[Any, Any, None]] = append) -> None:
            await asyncio.gather(*map(append, range(5)))

        with simulation(seed, disorder=0) as loop:
            loop.run_until_complete(main())
        assert order == [0, 1, 2, 3, 4] * 2


def test_loop_without_disorder_lets_processes_overtake_each_other() -> None:
    winners = set()
    for seed in range(20):
        with simulation(seed, disorder=0) as loop:
            order: list[str] = []

            async def arrive(order: list[str] = order, loop: SimulatedLoop = loop) -> None:
                order.append(loop.current_process.name)

            for name in "ab":
                loop.process(name).spawn(arrive())
            loop.run_until_complete(asyncio.sleep(1))
            winners.add(order[0])
    assert winners == {"a", "b"}


def test_timers_due_at_one_instant_run_in_either_order() -> None:
    orders = set()
    for seed in range(20):
        with simulation(seed) as loop:
            order: list[str] = []
            for name in "ab":
                loop.call_at(1.0, order.append, name)
            loop.run_until_complete(asyncio.sleep(2))
            orders.add("".join(order))
    assert orders == {"ab", "ba"}


# The loop itself


def test_virtual_time_starts_at_the_given_time_and_jumps_to_timers() -> None:
    with simulation(start=100.0) as loop:
        loop.run_until_complete(asyncio.sleep(86_400))
        assert loop.time() == 86_500


def test_cancelled_timers_do_not_run_advance_time_or_accumulate() -> None:
    with simulation() as loop:
        for _ in range(10_000):
            loop.call_later(1_000, forbidden).cancel()
        assert len(loop._timers) < 300
        loop.run_until_complete(asyncio.sleep(1))
        with pytest.raises(Deadlock):
            loop.run_until_complete(loop.create_future())
        assert loop.time() == 1


def test_timer_cancelled_while_ready_does_not_run() -> None:
    with simulation() as loop:
        second: list[asyncio.TimerHandle] = []
        first = loop.call_at(1, lambda: second[0].cancel())
        second.append(loop.call_at(1, lambda: first.cancel()))
        loop.run_until_complete(asyncio.sleep(2))
        assert first.cancelled() != second[0].cancelled()
        assert loop._timers_cancelled == 0


def test_deadlock_error_names_the_waiting_tasks_of_living_processes() -> None:
    with simulation() as loop:
        alive, dead = loop.process("alive"), loop.process("dead")
        alive.spawn(loop.never(), name="waiter")
        alive.spawn(loop.never())
        dead.spawn(loop.never(), name="ghost")
        dead.kill()
        with pytest.raises(Deadlock, match="waiter") as caught:
            loop.run_until_complete(loop.never())
        assert caught.value.tasks == ["main-1", "waiter", "alive-2"]


def test_livelock_error_ends_a_run_at_its_step_limit() -> None:
    with simulation(step_limit=1_000) as loop:

        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        with pytest.raises(Livelock):
            loop.run_until_complete(spin())
        assert loop.steps == 1_000


def test_loop_refuses_threads() -> None:
    with simulation() as loop:
        with pytest.raises(RuntimeError, match="threads"):
            loop.run_until_complete(asyncio.to_thread(forbidden))
        refused: list[RuntimeError] = []

        def from_a_thread() -> None:
            try:
                loop.call_soon_threadsafe(forbidden)
            except RuntimeError as error:
                refused.append(error)

        thread = threading.Thread(target=from_a_thread)
        thread.start()
        thread.join()
        assert refused
        called: list[int] = []
        loop.call_soon_threadsafe(called.append, 1)
        loop.run_until_complete(asyncio.sleep(0))
        assert called == [1]


def test_loop_refuses_work_when_closed_and_refuses_to_close_while_running() -> None:
    with simulation() as loop:

        async def main() -> None:
            assert loop.is_running()
            with pytest.raises(RuntimeError, match="running"):
                loop.close()
            with pytest.raises(RuntimeError, match="running"):
                loop.run_until_complete(loop.create_future())

        loop.run_until_complete(main())
        loop.close()
        assert loop.is_closed()
        with pytest.raises(RuntimeError, match="closed"):
            loop.call_soon(forbidden)
        with pytest.raises(RuntimeError, match="closed"):
            loop.call_later(1, forbidden)


def test_loop_stop_leaves_the_future_pending() -> None:
    with simulation() as loop:
        loop.call_later(1, loop.stop)
        with pytest.raises(RuntimeError, match="stopped"):
            loop.run_until_complete(loop.create_future())


def test_loop_disables_the_garbage_collector_during_a_run_and_restores_it() -> None:
    with simulation() as loop:

        async def enabled() -> bool:
            return gc.isenabled()

        assert gc.isenabled()
        assert loop.run_until_complete(enabled()) is False
        assert gc.isenabled()


def test_asyncio_runner_accepts_the_simulated_loop() -> None:
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(1)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        ghost = loop.process("ghost")
        ghost.spawn(asyncio.sleep(100))
        assert runner.run(asyncio.sleep(1, "slept")) == "slept"
        ghost.kill()


# Errors


def test_loop_collects_unhandled_errors_of_living_processes() -> None:
    with simulation() as loop:

        async def fail(message: str) -> None:
            raise ValueError(message)

        handled: list[object] = []
        loop.set_exception_handler(lambda _, context: handled.append(context["exception"]))
        kept = loop.process("server").spawn(fail("kept by the test"))
        loop.process("client").spawn(fail("dropped"))
        loop.call_later(1, lambda: 1 / 0)
        loop.run_until_complete(asyncio.sleep(2))
        assert kept.done()
        loop.close()
        found = {(error.process, type(error.exception)) for error in loop.errors}
        assert found == {("server", ValueError), ("client", ValueError), ("main", ZeroDivisionError)}
        assert len(loop.errors) == len(handled) == 3
        del kept


def test_retrieved_exception_is_not_collected_as_an_error() -> None:
    with simulation() as loop:

        async def main() -> None:
            task = loop.process("server").spawn(asyncio.wait_for(loop.never(), 1))
            with pytest.raises(TimeoutError):
                await task

        loop.run_until_complete(main())
        loop.close()
        assert loop.errors == []


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
        task_groups,
        context_variables,
        done_callbacks_run_before_the_awaiter,
        cancelling_a_task_by_callback_keeps_its_place,
        callbacks_run_in_the_order_of_registration,
    ],
)
def test_asyncio_primitives_behave_as_specified_under_every_seed(
    main: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    for seed in SEEDS:
        run(seed, main)
    gc.collect()


def test_dropped_async_generator_is_closed_in_its_own_process() -> None:
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


def test_shutdown_asyncgens_closes_unfinished_generators() -> None:
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
def test_eager_tasks_run_immediately() -> None:
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
