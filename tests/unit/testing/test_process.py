"""Simulated processes: each owns what it starts, may be paused, and takes it along when it dies."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from tests.unit.testing.simulation import simulation
from turnledger.testing.loop import Deadlock, SimulatedLoop, SimulatedProcess

# Owning


def test_a_callback_belongs_to_the_process_that_registered_it() -> None:
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


def test_tasks_timers_and_callbacks_belong_to_the_process_that_made_them() -> None:
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


def test_a_process_does_not_inherit_context_variables_of_another() -> None:
    variable = contextvars.ContextVar("variable", default="outside")
    with simulation() as loop:

        async def read() -> str:
            return variable.get()

        async def main() -> str:
            variable.set("inside main")
            return await loop.process("server").spawn(read())

        assert loop.run_until_complete(main()) == "outside"


# Dying


def test_a_dead_process_runs_nothing_new_and_its_name_is_free() -> None:
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


def test_only_the_process_itself_can_die() -> None:
    with simulation() as loop:
        process = loop.process("bystander")
        with pytest.raises(RuntimeError, match="own hand"):
            loop.run_until_complete(process.die())
        assert process.alive


def test_main_is_neither_killed_nor_paused() -> None:
    with simulation() as loop:
        with pytest.raises(ValueError, match="main"):
            loop.current_process.kill()
        with pytest.raises(ValueError, match="main"):
            loop.current_process.pause(1)


def test_a_future_of_a_dead_process_never_completes() -> None:
    with simulation() as loop:
        server, client = loop.process("server"), loop.process("client")

        async def answer() -> str:
            await asyncio.sleep(5)
            return "answer"

        asked = server.spawn(answer())

        async def ask() -> str:
            try:
                async with asyncio.timeout(60):
                    return await asyncio.shield(asked)
            except TimeoutError:
                return "no answer"

        told = client.spawn(ask())
        loop.call_later(1, server.kill)
        assert loop.run_until_complete(told) == "no answer"
        assert loop.time() == 60


def test_the_timers_of_a_killed_process_do_not_move_time() -> None:
    with simulation() as loop:
        process = loop.process("victim")
        process.spawn(asyncio.sleep(100))
        loop.run_until_complete(asyncio.sleep(1))
        process.kill()
        with pytest.raises(Deadlock):
            loop.run_until_complete(loop.never())
        assert loop.time() == 1


# Pausing


def test_a_timer_due_during_a_pause_runs_late_while_others_see_time_pass() -> None:
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


def test_a_process_that_pauses_itself_stops_at_its_next_await() -> None:
    with simulation() as loop:
        process = loop.process("paused")

        async def stall() -> float:
            process.pause(7)
            assert loop.time() == 0
            await asyncio.sleep(0)
            return loop.time()

        assert loop.run_until_complete(process.spawn(stall())) == 7


def test_a_lease_can_run_out_under_a_paused_holder() -> None:
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
