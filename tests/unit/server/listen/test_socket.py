"""The listening socket: its address, its open-file limit, and how workers share connections."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.server.processes import request, rest_of, started
from tests.unit.server.shared_counters import two_workers
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.listen.accept import CONNECTIONS, IDLE_PAUSES, Acceptor
from turnledger.server.listen.socket import allow_open_files, allowed_files, bind, open_files_for, url_of
from turnledger.server.ops.counters import SharedCounters


def test_port_in_use_is_reported_with_the_remedy() -> None:
    with bind(Settings(port=0)) as first:
        first.listen()
        port = first.getsockname()[1]
        assert url_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(InvalidSettings, match=f"--port: {port} is in use, .* Choose another port, or 0"):
            bind(Settings(port=port))


def test_host_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"--host: 192\.0\.2\.1 is not an address of this machine"):
        bind(Settings(host="192.0.2.1", port=0, insecure=True))


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_url_of_an_ipv6_address_is_bracketed() -> None:
    try:
        listener = bind(Settings(host="[::1]", port=0))
    except InvalidSettings:
        pytest.skip("no IPv6 here")
    with listener:
        assert url_of(listener).startswith("http://[::1]:")


resource = pytest.importorskip("resource")
FEW = 256


@pytest.fixture
def few_allowed() -> Iterator[int]:
    """Lower the soft limit of open files below the hard one; return the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_open_file_limit_is_raised_to_the_required_number(few_allowed: int) -> None:
    assert allow_open_files(FEW + 44) == FEW + 44
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (FEW + 44, few_allowed)
    assert allow_open_files(10) == 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (FEW + 44, few_allowed)


def test_open_file_limit_is_capped_at_the_hard_limit(few_allowed: int) -> None:
    if few_allowed == resource.RLIM_INFINITY:
        pytest.skip("there is no bound here")
    assert allowed_files(few_allowed + 1) == few_allowed
    assert allowed_files(few_allowed - 1) == few_allowed - 1


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of another process cannot be set")
def test_server_raises_its_file_limit_and_logs_once_when_connections_wait(few_allowed: int) -> None:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        soft, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft == allowed_files(open_files_for(ServerLimits().requests))
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 30, used + 30))
        clients = [server.connect() for _ in range(100)]
        line = server.wait_for("connection_not_taken")
        assert "Too many open files" in line
        for client in clients:
            client.sendall(request("/healthz", "Connection: close"))
        for client in clients:
            assert '{"status":"ok"}' in rest_of(client)
            client.close()
        code, _, log = server.end(signal.SIGTERM)
        assert (code, log.count("connection_not_taken")) == (0, 0)


class Counting(asyncio.Protocol):
    """A connection that is counted while it is there."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._worker.accepting.connection_opened()
        self._worker.connections.append(transport)
        self._worker.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.accepting.connection_closed()
        self._worker.changed.set()


class Worker:
    def __init__(self, listener: socket.socket, counters: SharedCounters, changed: asyncio.Event) -> None:
        self.connections: list[asyncio.BaseTransport] = []
        self.changed = changed
        self.accepting = Acceptor(listener, lambda: Counting(self), counters, 2)


class Shared:
    """A socket that workers share."""

    def __init__(self, listener: socket.socket, parts: list[SharedCounters]) -> None:
        self.listening = listener
        self.parts = parts
        self.changed = asyncio.Event()
        self.clients: list[asyncio.StreamWriter] = []

    def worker(self, part: int) -> Worker:
        return Worker(self.listening.dup(), self.parts[part], self.changed)

    async def connected_worker(self) -> Worker:
        """Start a worker, which has one client."""
        worker = self.worker(0)
        await self.connect(1)
        await self.counted(1)
        return worker

    async def connect(self, clients: int) -> None:
        """So many clients come."""
        port = self.listening.getsockname()[1]
        for _ in range(clients):
            self.clients.append((await asyncio.open_connection("127.0.0.1", port))[1])

    async def counted(self, connections: int) -> None:
        """Wait until the counters have exactly so many."""
        while self.parts[0].sum(CONNECTIONS) != connections:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def shared() -> AsyncIterator[Shared]:
    with socket.create_server(("127.0.0.1", 0)) as listener, two_workers() as (_, parts):
        here = Shared(listener, parts)
        yield here
        for client in here.clients:
            client.transport.abort()
        await here.counted(0)


def end(worker: Worker) -> None:
    worker.accepting.close()
    worker.accepting._listener.close()


async def test_workers_share_connections_evenly() -> None:
    async with shared() as here:
        workers = [here.worker(part) for part in range(2)]
        await here.connect(20)
        await here.counted(20)
        assert {len(each.connections) for each in workers} <= set(range(8, 13))
        for worker in workers:
            end(worker)


async def test_worker_with_an_inactive_neighbour_accepts_all_connections() -> None:
    async with shared() as here:
        worker = here.worker(0)
        await here.connect(5)
        await here.counted(5)
        assert len(worker.connections) == 5
        end(worker)


async def test_worker_with_a_dead_neighbour_stops_yielding_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shared() as here:
        worker = await here.connected_worker()
        steps_back, step_back = [], worker.accepting._pause_for

        def note(seconds: float) -> None:
            steps_back.append(seconds)
            step_back(seconds)

        monkeypatch.setattr(worker.accepting, "_pause_for", note)
        # All of them wait before the worker can look.
        clients = [socket.create_connection(here.listening.getsockname()) for _ in range(30)]
        await here.counted(31)
        assert len(steps_back) == IDLE_PAUSES
        for client in clients:
            client.close()
        end(worker)


async def test_closed_worker_leaves_pending_connections_to_the_others() -> None:
    async with shared() as here:
        leaving = await here.connected_worker()
        leaving.accepting.close()
        leaving.accepting.close()
        await here.connect(2)
        staying = here.worker(1)
        await here.counted(3)
        assert (len(leaving.connections), len(staying.connections)) == (1, 2)
        end(leaving)
        end(staying)


async def test_worker_without_free_descriptors_pauses_accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shared() as here:
        worker = here.worker(0)

        class Full:
            def accept(self) -> None:
                raise OSError(24, "Too many open files")

            def fileno(self) -> int:
                return real.fileno()

        real = worker.accepting._listener
        monkeypatch.setattr(worker.accepting, "_listener", Full())
        worker.accepting._accept()
        assert worker.accepting._pause is not None
        worker.accepting.close()
        real.close()
