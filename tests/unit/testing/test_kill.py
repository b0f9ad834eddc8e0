"""Killing: nothing that a killed process left suspended runs, reports an error or stays in memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.unit.testing.simulation import forbidden, simulation
from turnledger.testing.loop import SimulatedLoop, SimulatedProcess


class Resource:
    """Whose exit awaits, and must never begin."""

    async def __aenter__(self) -> None:
        await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        forbidden()
        await asyncio.sleep(0)


@contextlib.contextmanager
def generator_resource() -> Iterator[None]:
    try:
        yield
    finally:
        effects.append("sync generator")


@contextlib.asynccontextmanager
async def async_generator_resource() -> AsyncIterator[None]:
    try:
        with generator_resource():
            yield
    finally:
        effects.append("async generator")


effects: list[str] = []


async def guarded(wait: Callable[[], Awaitable[object]], started: list[bool]) -> None:
    """Wait inside everything that would run code if this coroutine were closed."""
    never_awaited = asyncio.sleep(1)
    try:
        async with Resource(), async_generator_resource(), asyncio.timeout(1_000):
            with contextlib.ExitStack() as stack, generator_resource():
                stack.enter_context(generator_resource())
                stack.callback(effects.append, "exit stack")
                started.append(True)
                await wait()
    except BaseException as error:
        effects.append(repr(error))
        raise
    finally:
        effects.append("finally")
        await asyncio.sleep(0)
        await never_awaited


async def in_async_generator(wait: Callable[[], Awaitable[object]], started: list[bool]) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        await guarded(wait, started)

    async for _ in numbers():
        pass


def ways_to_wait(loop: SimulatedLoop) -> dict[str, Callable[[], Awaitable[object]]]:
    return {
        "sleep": lambda: asyncio.sleep(100),
        "never": loop.never,
        "shield": lambda: asyncio.shield(asyncio.create_task(asyncio.sleep(100))),
        "gather": lambda: asyncio.gather(asyncio.sleep(100), guarded(loop.never, [])),
        "wait_for": lambda: asyncio.wait_for(guarded(loop.never, []), 50),
        "lock": asyncio.Semaphore(0).acquire,
        "queue": asyncio.Queue[None]().get,
    }


@pytest.fixture(autouse=True)
def no_effects() -> Iterator[None]:
    effects.clear()
    yield
    gc.collect()


@pytest.mark.parametrize("way", ways_to_wait(SimulatedLoop(0)))
@pytest.mark.parametrize("code", [guarded, in_async_generator])
@pytest.mark.parametrize("when", ["during the run", "at close"])
def test_nothing_of_a_killed_process_runs(way: str, code: Callable[..., Any], when: str) -> None:
    for seed in range(10):
        with simulation(seed) as loop:
            process, started = loop.process("victim"), [False]
            held = process.spawn(code(ways_to_wait(loop)[way], started))
            process.spawn(code(ways_to_wait(loop)[way], started))
            loop.run_until_complete(asyncio.sleep(10))
            assert started == [False, True, True]
            if when == "during the run":
                process.kill()
                gc.collect()
                loop.run_until_complete(asyncio.sleep(1_000))
                assert not process.alive
                assert not held.done()
        del held
        gc.collect()
        assert effects == []
        assert loop.errors == []


def test_an_idle_async_generator_of_a_killed_process_is_not_closed() -> None:
    with simulation() as loop:
        process = loop.process("victim")

        class Engine:
            stream: AsyncIterator[int]

        async def numbers() -> AsyncIterator[int]:
            async with async_generator_resource():
                with generator_resource():
                    yield 1

        async def serve() -> None:
            engine = Engine()
            engine.stream = numbers()
            await anext(engine.stream)
            await loop.never()

        process.spawn(serve())
        loop.run_until_complete(asyncio.sleep(1))
        process.kill()
        gc.collect()
        assert effects == []


def test_tasks_of_a_task_factory_die_quietly_too() -> None:
    with simulation() as loop:
        loop.set_task_factory(lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options))
        process = loop.process("victim")
        process.spawn(guarded(loop.never, []))
        process.spawn(loop.never())
        loop.run_until_complete(asyncio.sleep(1))
        process.kill()
        gc.collect()
        assert effects == []
        assert loop.errors == []


def test_a_process_can_die_at_any_step_without_effect() -> None:
    for steps in range(60):
        with simulation(steps) as loop:
            process = loop.process("victim")
            for wait in ways_to_wait(loop).values():
                process.spawn(guarded(wait, []))
                process.spawn(in_async_generator(wait, []))

            async def main(process: SimulatedProcess = process, steps: int = steps) -> None:
                for _ in range(steps):
                    await asyncio.sleep(0)
                process.kill()

            loop.run_until_complete(main())
        gc.collect()
        assert effects == []
        assert loop.errors == []


def test_a_process_dies_inside_its_own_call() -> None:
    with simulation() as loop:
        process = loop.process("victim")
        reached: list[str] = []

        async def store_call() -> None:
            reached.append("store")
            await process.die()

        async def other() -> None:
            await asyncio.sleep(1)
            forbidden()

        process.spawn(guarded(store_call, []))
        process.spawn(other())
        loop.run_until_complete(asyncio.sleep(10))
        assert reached == ["store"]
        assert not process.alive
        gc.collect()
        assert effects == []
        assert loop.errors == []


def test_what_a_process_schedules_after_its_own_kill_is_dropped() -> None:
    ran: list[str] = []
    with simulation() as loop:
        process, answer = loop.process("victim"), loop.create_future()
        answer.add_done_callback(lambda _: ran.append("callback of the answer"))

        async def kill_and_go_on() -> None:
            process.kill()
            loop.call_soon(ran.append, "soon")
            loop.call_later(1, ran.append, "later")
            answer.set_result("too late")
            asyncio.get_running_loop().create_task(guarded(loop.never, []))
            try:
                await asyncio.sleep(0)
            finally:
                ran.append("finally")

        process.spawn(kill_and_go_on())
        loop.run_until_complete(asyncio.sleep(5))
        assert loop.errors == []
    # Errors of a dead process are dropped, so what ran is noted outside of it.
    assert ran == []


def test_a_paused_process_can_be_killed() -> None:
    with simulation() as loop:
        process = loop.process("paused")
        process.spawn(guarded(loop.never, []))
        loop.run_until_complete(asyncio.sleep(1))
        process.pause(10)
        process.kill()
        process.pause(10)
        loop.run_until_complete(asyncio.sleep(50))
        assert effects == []


def test_errors_of_the_dead_are_nobody_s() -> None:
    with simulation() as loop:
        server = loop.process("server")

        async def fail() -> None:
            raise ValueError("nobody looks at this")

        async def fail_together() -> None:
            await asyncio.gather(fail(), fail())

        async def wait_for(future: asyncio.Future[None]) -> None:
            await future

        future: asyncio.Future[None] = loop.create_future()
        failed = server.spawn(fail())
        server.spawn(fail_together())
        server.spawn(wait_for(future))
        loop.run_until_complete(asyncio.sleep(1))
        loop.errors.clear()
        future.set_exception(ValueError("on its way when the server dies"))
        server.kill()
        del failed, future
        gc.collect()
        assert loop.errors == []


def test_a_killed_process_frees_its_memory() -> None:
    class Engine:
        pass

    with simulation() as loop:
        process, engine = loop.process("victim"), Engine()

        async def serve(engine: Engine) -> None:
            try:
                await loop.never()
            finally:
                del engine

        process.spawn(serve(engine))
        loop.run_until_complete(asyncio.sleep(1))
        alive = weakref.ref(engine)
        del engine
        process.kill()
        gc.collect()
        assert alive() is None
