"""Where scenarios run: on a ledger, or on a server behind a proxy that breaks connections."""

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
    """A clock that advances with each read, so that times are unique and ordered."""

    _last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(super().now_ms(), self._last_ms + 1)
        return self._last_ms


class Place(ABC):
    """A ledger or server, and the connection to it."""

    base_url = ""
    knows: Mapping[str, Any] = {}
    """Values for scenarios, by name."""

    @abstractmethod
    async def begin(self) -> None:
        """Repair everything before the next scenario."""

    @abstractmethod
    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        """Wait until this many turns run or wait."""

    async def faults(self, faults: list[dict[str, Any] | None]) -> None:
        """Plan faults of the next requests."""
        raise AssertionError("there is no wire here")

    async def wire(self, what: str) -> None:
        """Break or repair all connections."""
        raise AssertionError("there is no wire here")

    async def wait_for_faults(self, count: int) -> None:
        """Wait until this many faults have happened."""
        raise AssertionError("there is no wire here")

    async def server(self, what: str) -> None:
        """Kill or restart the server."""
        raise AssertionError("there is no server here that can be killed")


class EmbeddedPlace(Place):
    """A ledger in this process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def begin(self) -> None:
        pass

    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        await at_work(self._ledger, running, waiting)


class ProxiedPlace(Place):
    """A server behind a fault proxy, with one planned fault per request."""

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
    """A server process that can be killed, and restarts on its file behind the same proxy."""

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
        """Kill and restart it."""
        await self.server("kill")
        await self.server("start")

    async def replace(self) -> None:
        """Shut it down and restart it."""
        await self.server("end")
        await self.server("start")

    async def rest(self) -> None:
        """Shut it down."""
        await self.server("end")

    async def close(self) -> None:
        if self._process is not None:
            await self.server("kill")


class WorkersPlace(ProxiedPlace):
    """A server with several workers: one is killed at a time, or all are replaced one by one."""

    def __init__(self, proxy: FaultProxy, workers: SeveralWorkers) -> None:
        super().__init__(proxy)
        self.store = workers.store
        self._workers = workers

    async def at_work(self, *, running: int | None = None, waiting: int | None = None) -> None:
        raise AssertionError("nobody looks inside a process")

    async def lose(self) -> None:
        """Kill a worker and wait for its replacement."""
        seen, pids = len(self._workers.events), self._workers.pids()
        worker = min(pids, key=lambda each: pids[each])  # the oldest, so that all are killed in turn
        os.kill(pids[worker], signal.SIGKILL)
        await self._workers.event("worker_started", seen, worker=worker)

    async def replace(self) -> None:
        """Replace all workers."""
        seen = len(self._workers.events)
        self._workers.signal(signal.SIGHUP)
        await self._workers.event("workers_replaced", seen)

    async def rest(self) -> None:
        """Shut it down."""
        self._workers.signal(signal.SIGTERM)
        assert await self._workers.wait_ended() == 0


async def at_work(ledger: Ledger, running: int | None, waiting: int | None) -> None:
    """Wait until this many turns of a ledger run, and wait."""
    while True:
        now = Host(ledger).at_work()
        if running in (None, now.running) and waiting in (None, now.waiting):
            return
        await asyncio.sleep(0.001)  # clients run in other threads and processes


@asynccontextmanager
async def served_place(settings: Settings | None = None) -> AsyncIterator[ServedPlace]:
    """Run a server with the demo model in this loop."""
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
    """Run a server that requires tokens, and rechecks them often."""
    async with served_place(settings) as place:
        _, text = await Host(place.serving.ledger).tokens.create(scopes=list(TokenScope), name="admin")
        place.knows = {"admin": text}
        place.serving.app.service.token_watch.check_every = 0.02
        yield place


@asynccontextmanager
async def process_place(folder: Path) -> AsyncIterator[ProcessPlace]:
    async with FaultProxy(0, by_exchange=True) as proxy:
        place = ProcessPlace(proxy, folder)
        try:
            yield place
        finally:
            await place.close()


@asynccontextmanager
async def workers_place(folder: Path, workers: int) -> AsyncIterator[WorkersPlace]:
    async with (
        several_workers(folder, None, "--grace", "0.2", workers=workers) as server,
        FaultProxy(server.port, by_exchange=True) as proxy,
    ):
        yield WorkersPlace(proxy, server)


@asynccontextmanager
async def embedded_place() -> AsyncIterator[tuple[Ledger, EmbeddedPlace]]:
    async with await Ledger.over(MemoryStore(), clock=MovingClock()) as ledger:
        yield ledger, EmbeddedPlace(ledger)
