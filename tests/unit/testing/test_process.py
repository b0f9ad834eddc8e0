"""Simulated processes: each owns its tasks, can be paused, and stops without a trace when killed."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.unit.testing.simulation import forbidden, simulation
from turnledger.testing.simulated_loop import Deadlock, SimulatedLoop, SimulatedProcess

# Owning


def test_callback_runs_in_the_process_that_registered_it() -> None:
    for seed in range(20):
        with simulation(seed) as loop:
            server, client = loop.process("server"), loop.process("client")
            future: asyncio.Future[None] = loop.create_future()
            ran_in: list[str] = []

            async def register(
                ran_in: list[str] = ran_in, loop: SimulatedLoop = loop, f: Any = future
            ) -> None:
                f.add_done_callback(lambda _: ran_in.append(loop.current_process.name))
                await f
                ran_in.append(loop.current_process.name)

            async def complete_and_die(f: Any = future, server: SimulatedProcess = server) -> None:
                await asyncio.sleep(1)
                f.set_result(None)
                await server.die()

            client.spawn(register())
            server.spawn(complete_and_die())
            loop.run_until_complete(asyncio.sleep(2))
            assert ran_in == ["client", "client"]


def test_tasks_timers_and_callbacks_run_in_the_process_that_created_them() -> None:
    with simulation() as loop:
        server = loop.process("server")
        seen: list[str] = []

        def note() -> None:
            seen.append(loop.current_process.name)

        async def child() -> None:
            note()

        async def serve() -> None:
            loop.call_soon(note)
            loop.call_later(1, note)
            await asyncio.create_task(child())
            note()

        assert loop.current_process.name == "main"
        server.spawn(serve())
        loop.run_until_complete(asyncio.sleep(2))
        assert seen == ["server"] * 4
        assert loop.current_process.name == "main"


def test_process_does_not_inherit_context_variables_of_another() -> None:
    variable = contextvars.ContextVar("variable", default="outside")
    with simulation() as loop:

        async def read() -> str:
            return variable.get()

        async def main() -> str:
            variable.set("inside main")
            return await loop.process("server").spawn(read())

        assert loop.run_until_complete(main()) == "outside"


# Dying


def test_dead_process_refuses_new_tasks_and_frees_its_name() -> None:
    with simulation() as loop:
        first = loop.process("server")
        with pytest.raises(ValueError, match="alive"):
            loop.process("server")
        first.kill()
        first.kill()
        with pytest.raises(RuntimeError, match="dead"):
            first.spawn(asyncio.sleep(0))
        second = loop.process("server")
        assert loop.run_until_complete(second.spawn(asyncio.sleep(1, "alive"))) == "alive"
        assert (repr(first), repr(second)) == (
            "<SimulatedProcess server dead>",
            "<SimulatedProcess server alive>",
        )


def test_process_die_called_from_another_process_is_refused() -> None:
    with simulation() as loop:
        process = loop.process("bystander")
        with pytest.raises(RuntimeError, match="must be called in process"):
            loop.run_until_complete(process.die())
        assert process.alive


def test_main_process_refuses_kill_and_pause() -> None:
    with simulation() as loop:
        with pytest.raises(ValueError, match="main"):
            loop.current_process.kill()
        with pytest.raises(ValueError, match="main"):
            loop.current_process.pause(1)


def test_future_of_a_dead_process_never_completes() -> None:
    with simulation() as loop:
        server, client = loop.process("server"), loop.process("client")

        async def answer() -> str:
            await asyncio.sleep(5)
            return "answer"

        answering = server.spawn(answer())

        async def wait_for_answer() -> str:
            try:
                async with asyncio.timeout(60):
                    return await asyncio.shield(answering)
            except TimeoutError:
                return "no answer"

        waiting = client.spawn(wait_for_answer())
        loop.call_later(1, server.kill)
        assert loop.run_until_complete(waiting) == "no answer"
        assert loop.time() == 60


def test_timers_of_a_killed_process_do_not_advance_time() -> None:
    with simulation() as loop:
        process = loop.process("victim")
        process.spawn(asyncio.sleep(100))
        loop.run_until_complete(asyncio.sleep(1))
        process.kill()
        with pytest.raises(Deadlock):
            loop.run_until_complete(loop.never())
        assert loop.time() == 1


# Pausing


def test_timer_due_during_a_pause_runs_late_while_other_processes_continue() -> None:
    with simulation() as loop:
        paused, other = loop.process("paused"), loop.process("other")
        woken: list[tuple[str, float]] = []

        async def nap(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((name, loop.time()))

        paused.spawn(nap("paused", 3))
        other.spawn(nap("other", 3))
        loop.call_later(1, paused.pause, 10)
        loop.run_until_complete(asyncio.sleep(20))
        assert woken == [("other", 3.0), ("paused", 11.0)]


def test_overlapping_pauses_last_until_the_later_end() -> None:
    with simulation() as loop:
        process = loop.process("paused")
        process.pause(5)
        process.pause(10)
        process.pause(1)
        task = process.spawn(asyncio.sleep(0))
        loop.run_until_complete(task)
        assert loop.time() == 10


def test_process_that_pauses_itself_stops_at_its_next_await() -> None:
    with simulation() as loop:
        process = loop.process("paused")

        async def stall() -> float:
            process.pause(7)
            assert loop.time() == 0
            await asyncio.sleep(0)
            return loop.time()

        assert loop.run_until_complete(process.spawn(stall())) == 7


def test_lease_can_expire_while_its_holder_is_paused() -> None:
    """The classic: the holder checks its lease, stalls, and acts after another has taken over."""
    with simulation() as loop:
        holder = loop.process("holder")
        acted_at: list[float] = []

        async def hold() -> None:
            expires = loop.time() + 5
            while loop.time() < expires:
                await asyncio.sleep(1)
                acted_at.append(loop.time())

        holder.spawn(hold())
        loop.call_later(2.5, holder.pause, 30)
        loop.run_until_complete(asyncio.sleep(100))
        assert acted_at == [1.0, 2.0, 32.5]


class Resource:
    """A context whose exit awaits, and must never begin."""

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
def test_killed_process_runs_no_more_code(way: str, code: Callable[..., Any], when: str) -> None:
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


def test_idle_async_generator_of_a_killed_process_is_not_closed() -> None:
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


def test_killed_process_with_a_task_factory_runs_no_more_code() -> None:
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


def test_process_killed_at_any_step_has_no_further_effect() -> None:
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


def test_process_that_dies_inside_its_own_call_runs_no_more_code() -> None:
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


def test_callbacks_scheduled_by_a_process_after_its_own_kill_are_dropped() -> None:
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


def test_paused_process_can_be_killed() -> None:
    with simulation() as loop:
        process = loop.process("paused")
        process.spawn(guarded(loop.never, []))
        loop.run_until_complete(asyncio.sleep(1))
        process.pause(10)
        process.kill()
        process.pause(10)
        loop.run_until_complete(asyncio.sleep(50))
        assert effects == []


def test_errors_of_a_dead_process_are_not_collected() -> None:
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


def test_killed_process_frees_its_memory() -> None:
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
