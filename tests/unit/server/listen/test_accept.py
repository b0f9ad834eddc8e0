"""Of workers at one socket, each takes its share of connections; one that is alone takes all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from turnledger.server.listen.accept import CONNECTIONS, IN_VAIN, Acceptor
from turnledger.server.ops.counters import SharedBoard


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Counting(asyncio.Protocol):
    """A connection that is counted while it is there."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._worker.accepting.came()
        self._worker.connections.append(transport)
        self._worker.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.accepting.went()
        self._worker.changed.set()


class Worker:
    def __init__(self, listening: socket.socket, board: SharedBoard, changed: asyncio.Event) -> None:
        self.connections: list[asyncio.BaseTransport] = []
        self.changed = changed
        self.accepting = Acceptor(listening, lambda: Counting(self), board, 2)


@contextmanager
def boards() -> Iterator[list[SharedBoard]]:
    board = SharedBoard.create(parts=2, cells=64)
    parts = [SharedBoard(board.descriptor, part) for part in range(2)]
    yield parts
    for part in parts:
        part.detach()
    board.close()


class Shared:
    """A socket that workers share."""

    def __init__(self, listening: socket.socket, parts: list[SharedBoard]) -> None:
        self.listening = listening
        self.parts = parts
        self.changed = asyncio.Event()
        self.clients: list[asyncio.StreamWriter] = []

    def worker(self, part: int) -> Worker:
        return Worker(self.listening.dup(), self.parts[part], self.changed)

    async def connect(self, clients: int) -> None:
        """So many clients come."""
        port = self.listening.getsockname()[1]
        for _ in range(clients):
            self.clients.append((await asyncio.open_connection("127.0.0.1", port))[1])

    async def counted(self, connections: int) -> None:
        """Wait until just so many are on the board."""
        while self.parts[0].sum(CONNECTIONS) != connections:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def shared() -> AsyncIterator[Shared]:
    with socket.create_server(("127.0.0.1", 0)) as listening, boards() as parts:
        here = Shared(listening, parts)
        yield here
        for client in here.clients:
            client.transport.abort()
        await here.counted(0)


def end(worker: Worker) -> None:
    worker.accepting.close()
    worker.accepting._listening.close()


async def test_each_worker_takes_its_share() -> None:
    async with shared() as here:
        workers = [here.worker(part) for part in range(2)]
        await here.connect(20)
        await here.counted(20)
        assert {len(each.connections) for each in workers} <= set(range(8, 13))
        for worker in workers:
            end(worker)


async def test_one_whose_neighbour_is_busy_takes_all() -> None:
    async with shared() as here:
        worker = here.worker(0)
        await here.connect(5)
        await here.counted(5)
        assert len(worker.connections) == 5
        end(worker)


async def test_one_whose_neighbour_is_dead_does_not_step_back_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shared() as here:
        worker = here.worker(0)
        await here.connect(1)
        await here.counted(1)
        steps_back, step_back = [], worker.accepting._step_back

        def note(seconds: float) -> None:
            steps_back.append(seconds)
            step_back(seconds)

        monkeypatch.setattr(worker.accepting, "_step_back", note)
        # All of them wait before the worker can look.
        clients = [socket.create_connection(here.listening.getsockname()) for _ in range(30)]
        await here.counted(31)
        assert len(steps_back) == IN_VAIN
        for client in clients:
            client.close()
        end(worker)


async def test_who_is_closed_leaves_the_waiting_to_the_others() -> None:
    async with shared() as here:
        leaving = here.worker(0)
        await here.connect(1)
        await here.counted(1)
        leaving.accepting.close()
        leaving.accepting.close()
        await here.connect(2)
        staying = here.worker(1)
        await here.counted(3)
        assert (len(leaving.connections), len(staying.connections)) == (1, 2)
        end(leaving)
        end(staying)


async def test_without_room_for_one_more_it_waits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shared() as here:
        worker = here.worker(0)

        class Full:
            def accept(self) -> None:
                raise OSError(24, "Too many open files")

            def fileno(self) -> int:
                return real.fileno()

        real = worker.accepting._listening
        monkeypatch.setattr(worker.accepting, "_listening", Full())
        worker.accepting._take()
        assert worker.accepting._pause is not None
        worker.accepting.close()
        real.close()
