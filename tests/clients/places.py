"""Where scenarios are played: on a ledger itself, or on a server behind a wire that breaks on command."""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.killed_server import ServerProcess
from tests.crash.several_workers import SeveralWorkers, several_workers
from tests.crash.tcp_server import TcpServer, run_tcp_server
from turnledger import Ledger
from turnledger.engine.clock import SystemClock
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import Settings
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fault_proxy import Fault, FaultProxy

QUICK = ("tests.tuned_cli", "pace=0.005")


class MovingClock(SystemClock):
    """The time, by a clock that moves on with each look: what came later also says so."""

    _last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(super().now_ms(), self._last_ms + 1)
        return self._last_ms


class Place(ABC):
    """What stands between the client and the ledger, and can be broken."""

    base_url = ""
    knows: Mapping[str, Any] = {}
    """What scenarios are told of it, by name."""

    @abstractmethod
    async def begin(self) -> None:
        """Everything is whole again: another scenario begins."""

    @abstractmethod
    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        """Wait until so many turns run, or wait for others."""

    async def faults(self, faults: list[dict[str, Any] | None]) -> None:
        """Plan what happens to the next requests."""
        raise AssertionError("there is no wire here")

    async def wire(self, what: str) -> None:
        """Do something to all connections."""
        raise AssertionError("there is no wire here")

    async def wait_for_faults(self, count: int) -> None:
        """Wait until so many requests were broken."""
        raise AssertionError("there is no wire here")

    async def server(self, what: str) -> None:
        """Do something to the server."""
        raise AssertionError("there is no server here that can be killed")


class EmbeddedPlace(Place):
    """A ledger in this process. There is nothing in between that could break."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def begin(self) -> None:
        pass

    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        await at_work(self._ledger, running, waiting)


class ProxiedPlace(Place):
    """A server behind a fault proxy, whose plans are for requests, whichever connection they come by."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.base_url = f"http://127.0.0.1:{proxy.port}"
        self._faults_before = 0

    async def begin(self) -> None:
        self.proxy.forget_plans()
        await self.proxy.accept()
        self.proxy.resume()
        self._faults_before = self.proxy.faults

    async def faults(self, faults: list[dict[str, Any] | None]) -> None:
        self.proxy.plan(*(None if each is None else msgspec.convert(each, Fault) for each in faults))

    async def wait_for_faults(self, count: int) -> None:
        await self.proxy.wait_for_faults(self._faults_before + count)

    async def wire(self, what: str) -> None:
        if what in ("refuse", "accept"):
            await (self.proxy.refuse() if what == "refuse" else self.proxy.accept())
        elif what in ("cut", "reset"):
            self.proxy.cut(resets=what == "reset")
        elif what == "stall":
            self.proxy.stall()
        else:
            assert what == "resume", f"what is it to {what} a wire?"
            self.proxy.resume()


class ServedPlace(ProxiedPlace):
    """A server in the loop of the test."""

    def __init__(self, serving: TcpServer, proxy: FaultProxy) -> None:
        super().__init__(proxy)
        self.serving = serving

    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        await at_work(self.serving.ledger, running, waiting)


class ProcessPlace(ProxiedPlace):
    """A server that is a process, and can be killed. It comes back on its file, behind the same proxy."""

    def __init__(self, proxy: FaultProxy, folder: Path) -> None:
        super().__init__(proxy)
        self.store = f"sqlite:///{folder / 'chats.db'}"
        self._folder = folder
        self._process: ServerProcess | None = None

    async def begin(self) -> None:
        await super().begin()
        if self._process is None:
            await self.server("start")

    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        raise AssertionError("nobody looks inside a process")

    async def server(self, what: str) -> None:
        if what == "start":
            assert self._process is None, "it runs"
            self._process = ServerProcess(self._folder, None, "--grace", "0.2", command=QUICK)
            url = await self._process.wait_ready()
            self.proxy.server_port = int(url.rpartition(":")[2])
            return
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        code = await process.end({"kill": signal.SIGKILL, "end": signal.SIGTERM}[what])
        assert code == (0 if what == "end" else -signal.SIGKILL), process.errors.read_text()

    async def lose(self) -> None:
        """Have it killed, and another one in its place."""
        await self.server("kill")
        await self.server("start")

    async def replace(self) -> None:
        """Have it told to end, and another one in its place."""
        await self.server("end")
        await self.server("start")

    async def rest(self) -> None:
        """Have it told to end for good."""
        await self.server("end")

    async def close(self) -> None:
        if self._process is not None:
            await self.server("kill")


class WorkersPlace(ProxiedPlace):
    """A server of several workers, of which one is killed at a time, or all are replaced one by one."""

    def __init__(self, proxy: FaultProxy, workers: SeveralWorkers) -> None:
        super().__init__(proxy)
        self.store = workers.store
        self._workers = workers

    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        raise AssertionError("nobody looks inside a process")

    async def lose(self) -> None:
        """Have a worker killed, and wait until another has its place."""
        seen, pids = len(self._workers.events), self._workers.pids()
        worker = min(pids, key=lambda each: pids[each])  # the oldest: each has its turn
        os.kill(pids[worker], signal.SIGKILL)
        await self._workers.event("worker_started", seen, worker=worker)

    async def replace(self) -> None:
        """Have all workers replaced, and wait for it."""
        seen = len(self._workers.events)
        self._workers.signal(signal.SIGHUP)
        await self._workers.event("workers_replaced", seen)

    async def rest(self) -> None:
        """Have it told to end for good."""
        self._workers.signal(signal.SIGTERM)
        assert await self._workers.wait_ended() == 0


async def at_work(ledger: Ledger, running: int | None, waiting: int | None) -> None:
    """Wait until so many turns run in a ledger, and wait there."""
    while True:
        now = Host(ledger).at_work()
        if running in (None, now.running) and waiting in (None, now.waiting):
            return
        await asyncio.sleep(0.001)  # clients have threads and processes of their own


@asynccontextmanager
async def served_place(settings: Settings | None = None) -> AsyncIterator[ServedPlace]:
    """A server with the demo model, in this loop."""
    async with (
        run_tcp_server(DemoModel(pace=0), settings, store=MemoryStore(), clock=MovingClock()) as serving,
        FaultProxy(serving.port, by_exchange=True, spared=b"OPTIONS ") as proxy,
    ):
        place = ServedPlace(serving, proxy)
        try:
            yield place
        finally:
            await serving.stop_everything()


@asynccontextmanager
async def guarded_place(settings: Settings | None = None) -> AsyncIterator[ServedPlace]:
    """A server that asks for tokens, and looks often whether they are still valid."""
    async with served_place(settings) as place:
        _, text = await Host(place.serving.ledger).tokens.create(scopes=list(TokenScope), name="admin")
        place.knows = {"admin": text}
        place.serving.app.service.streams.check_every = 0.02
        yield place


@asynccontextmanager
async def process_place(folder: Path) -> AsyncIterator[ProcessPlace]:
    """A server that can be killed."""
    async with FaultProxy(0, by_exchange=True) as proxy:
        place = ProcessPlace(proxy, folder)
        try:
            yield place
        finally:
            await place.close()


@asynccontextmanager
async def workers_place(folder: Path, workers: int) -> AsyncIterator[WorkersPlace]:
    """A server of several workers."""
    async with (
        several_workers(folder, None, "--grace", "0.2", workers=workers) as server,
        FaultProxy(server.port, by_exchange=True) as proxy,
    ):
        yield WorkersPlace(proxy, server)


@asynccontextmanager
async def embedded_place() -> AsyncIterator[tuple[Ledger, EmbeddedPlace]]:
    """A ledger in this loop."""
    async with await Ledger.over(MemoryStore(), clock=MovingClock()) as ledger:
        yield ledger, EmbeddedPlace(ledger)
