"""Simulated server processes, and the scene that the clients of a schedule share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeAlias

from turnledger.engine.limits import Limits
from turnledger.engine.ports import Store
from turnledger.ledger import OWNER, Ledger
from turnledger.model.ids import LeaseId
from turnledger.testing.simulated_loop import SimulatedLoop, SimulatedProcess
from turnledger.testing.simulation.clients.names import Names
from turnledger.testing.simulation.faults import CALM, FaultyStore, Medium
from turnledger.testing.simulation.oracle.observer import observe
from turnledger.testing.simulation.power import find_losses
from turnledger.testing.simulation.wall_clock import SimulatedClock, WallClock
from turnledger.testing.simulation.world import LEASE_TIME, World

Work: TypeAlias = Callable[[Ledger], Coroutine[Any, Any, None]]

LIMITS = Limits(
    lease_time=LEASE_TIME,
    queue_length=6,
    queue_wait=40.0,
    commit_patience=1.0,
    doubt_patience=1.0,
    attempts_kept=10_000_000.0,
    changes_kept=10_000_000.0,
    purge_rows=3,
    reader_events=3,
    clock_tolerance=60.0,
    clock_agreement=60.0,
)


@dataclass
class SimulatedServer:
    process: SimulatedProcess
    start: asyncio.Future[None]
    death: asyncio.Future[None]
    ledger: Ledger | None = None
    lease: LeaseId | None = None


class Servers:
    """All servers of a schedule. With `detects_death`, dead ones are known at once."""

    def __init__(
        self,
        loop: SimulatedLoop,
        open_inner: Callable[[], Awaitable[Store]],
        world: World,
        random: Random,
        medium: Medium,
        *,
        detects_death: bool,
        wall: WallClock,
    ) -> None:
        self.crashes = 0
        self.runs_jobs = False
        self._wall = wall
        self.medium = medium
        self._loop = loop
        self._open_inner = open_inner
        self._world = world
        self._random = random
        self._detects_death = detects_death
        self._gone: set[LeaseId] = set()
        self._servers: list[SimulatedServer] = []

    async def start(self) -> SimulatedServer:
        while True:
            process = self._loop.process(f"server {len(self._servers)}")
            server = SimulatedServer(process, self._loop.create_future(), self._loop.create_future())
            self._servers.append(server)
            process.spawn(self._serve(server, self._random.getrandbits(64)))
            await server.start
            if server.ledger is not None:
                return server

    async def _serve(self, server: SimulatedServer, seed: int) -> None:
        random = Random(seed)
        inner = await self._open_inner()
        power = self.medium.power
        if power is not None and power.has_failed:
            power.has_failed = False
            self._world.violations += await inner.read(find_losses, self._world, OWNER)
        store = FaultyStore(
            inner,
            self.medium,
            die=lambda: self._die(server),
            pause=lambda: server.process.pause(LEASE_TIME * random.choice((0.3, 1.2, 3.0))),
            observe=lambda operation, owner: observe(operation, owner, self._world),
            on_result=self._world.note_result,
            is_holder_dead=self._gone.__contains__,
            on_lease=lambda lease: setattr(server, "lease", lease),
        )
        clock = SimulatedClock(self._loop, self._wall, random.choice((0, 0, -7_000, 30_000)))
        server.ledger = await Ledger.over(store, limits=LIMITS, clock=clock, random=random)
        store.is_starting = False
        server.start.set_result(None)
        if self.runs_jobs:
            crash = partial(self._crash, server)
            await server.ledger.work(lambda turn: self._world.run_job(turn, random, crash), at_once=2)
        await asyncio.get_running_loop().create_future()

    def _die(self, server: SimulatedServer) -> None:
        power = self.medium.power
        if power is not None and power.should_fail(0.5):
            self.lose_power()
        else:
            self._kill([server])

    async def _crash(self, server: SimulatedServer) -> None:
        """Die while a job runs, unless the schedule is about to end."""
        if self.medium.weather is not CALM:
            self._die(server)
            await asyncio.get_running_loop().create_future()

    def lose_power(self) -> None:
        """Kill all processes and lose their unsynced writes."""
        assert self.medium.power is not None
        self._kill([server for server in self._servers if server.process.alive])
        self.medium.in_flight.clear()
        self.medium.power.cut()

    def _kill(self, servers: list[SimulatedServer]) -> None:
        for server in servers:
            self.crashes += 1
            if server.lease is not None:
                self._world.dead.add(server.lease)
                if self._detects_death:
                    self._gone.add(server.lease)
            for future in (server.start, server.death):
                if not future.done():
                    future.set_result(None)
        for server in servers:  # last: one may be the caller, and dead processes schedule nothing
            server.process.kill()

    async def pick(self) -> SimulatedServer:
        """Pick a living server; start one if there is none, or sometimes if there is one."""
        alive = [server for server in self._servers if server.process.alive and server.ledger is not None]
        if not alive or (len(alive) < 2 and self._random.random() < 0.3):
            return await self.start()
        return self._random.choice(alive)

    async def do(self, work: Work, timeout: float | None = None) -> None:
        """Run work on a server; return when it is done, timed out or dead."""
        server = await self.pick()
        if server.ledger is None or not server.process.alive:
            return
        task = server.process.spawn(self._answer(work, server.ledger))
        waiting = (task, server.death)
        await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not server.death.done():
            task.cancel()
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        elif task.done() and task.cancelled():
            self._world.violations.append("a task was cancelled by no caller")

    async def _answer(self, work: Work, ledger: Ledger) -> None:
        power = self.medium.power
        if power is None:
            await work(ledger)
            return
        power.begin_action(work.__name__)
        await work(ledger)
        power.end_action()
        if power.should_fail(0.15):
            self.lose_power()
            await asyncio.get_running_loop().create_future()

    async def close_one(self) -> None:
        """Close a server properly; its process lives on without serving."""
        server = await self.pick()
        ledger, server.ledger = server.ledger, None
        if ledger is not None and server.process.alive:
            task = server.process.spawn(ledger.close())
            await asyncio.wait((task, server.death), return_when=asyncio.FIRST_COMPLETED)


@dataclass(frozen=True)
class Scene:
    random: Random
    world: World
    names: Names
    servers: Servers
