"""`turnledger serve --workers`, and connections to known workers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.killed_server import environment
from tests.crash.tcp_server import PartialResponse, exchange, request
from tests.fork_server import ForkedProcess

Event = dict[str, Any]


class Line:
    """A connection to one of the workers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.worker = -1

    async def greet(self, name: str) -> None:
        """Send a request under this name that leaves the connection open."""
        self._writer.write(
            f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {name}\r\n\r\n".encode()
        )
        await self._reader.readuntil(b"}")

    async def exchange(self, sent: bytes, response: PartialResponse | None = None) -> PartialResponse:
        """Send a request and receive until the connection closes."""
        response = response or PartialResponse()
        try:
            self._writer.write(sent)
            while piece := await self._reader.read(65_536):
                response.take(piece)
        except ConnectionError:
            pass
        response.take(b"")
        return response

    def close(self) -> None:
        self._writer.transport.abort()


class SeveralWorkers:
    """A running server: its socket, processes and log."""

    def __init__(self, process: ForkedProcess, store: str) -> None:
        self.process = process
        self.store = store
        self.port = 0
        self.events: list[Event] = []
        self.other_lines: list[str] = []
        self._lines: list[Line] = []
        self._logged = asyncio.Event()
        self._names = count()
        self._reading = asyncio.create_task(self._read_log())

    async def _read_log(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self.process.stderr
        )
        async for line in reader:
            try:
                self.events.append(msgspec.json.decode(line))
            except msgspec.DecodeError:
                self.other_lines.append(line.decode())
            self._logged.set()
        pipe.close()

    async def wait_ready(self, workers: int) -> None:
        """Wait until it serves and has logged this many workers."""
        address = re.compile(r"http://127\.0\.0\.1:(\d+)")
        found = await asyncio.to_thread(next, filter(None, map(address.search, self.process.stdout)), None)
        assert found is not None, (self.events, self.other_lines)
        self.port = int(found[1])
        await self.wait_logged(lambda _: len(self.pids()) == workers)

    async def wait_logged(self, is_so: Callable[[list[Event]], Any]) -> Any:
        """Wait until a function of the log returns a value; return it."""
        while not (found := is_so(self.events)):
            self._logged.clear()
            assert not self._reading.done(), (self.events, self.other_lines)
            await self._logged.wait()
        return found

    async def event(self, name: str, after: int = 0, **fields: Any) -> Event:
        """Wait for the first event with this name and these fields, after `after` events."""

        def look(events: list[Event]) -> Event | None:
            wanted = {"event": name, **fields}.items()
            return next((each for each in events[after:] if wanted <= each.items()), None)

        found: Event = await self.wait_logged(look)
        return found

    async def line(self, to: Callable[[int], bool] = lambda _: True) -> Line:
        """Connect to a worker that meets a condition."""
        while True:
            line = Line(*await asyncio.open_connection("127.0.0.1", self.port))
            self._lines.append(line)
            name = f"line-{next(self._names)}"
            await line.greet(name)
            line.worker = (await self.event("request", request_id=name))["worker"]
            if to(line.worker):
                return line

    async def two_lines(self) -> tuple[Line, Line]:
        one = await self.line()
        return one, await self.line(lambda worker: worker != one.worker)

    async def get(self, path: str) -> PartialResponse:
        return await exchange(self.port, request(path, method="GET"))

    def pids(self) -> dict[int, int]:
        """Return the process ids of the workers, by number, from the log."""
        living = {}
        for event in self.events:
            if event["event"] == "worker_started":
                living[event["worker"]] = event["pid"]
            elif event["event"] == "worker_ended" and living.get(event["worker"]) == event["pid"]:
                del living[event["worker"]]
        return living

    def signal(self, number: signal.Signals) -> None:
        """Send it to the supervisor only."""
        self.process.send_signal(number)

    def signal_all(self, number: signal.Signals) -> None:
        """Send it to all processes, as terminals and service managers do."""
        os.killpg(self.process.pid, number)

    async def wait_ended(self) -> int:
        """Wait until no process is left, that is, none has the log open; return the exit code."""
        await self._reading
        return await asyncio.to_thread(self.process.wait)

    def close(self) -> None:
        for line in self._lines:
            line.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@asynccontextmanager
async def several_workers(
    folder: Path, upstream: str | None, *flags: str, workers: int = 2
) -> AsyncIterator[SeveralWorkers]:
    """Run a server with several workers."""
    store = f"sqlite:///{folder / 'chats.db'}"
    command = ["turnledger", "serve", "--port", "0", "--workers", str(workers), "--store", store]
    if upstream is not None:
        command += ["--upstream", upstream]
    process = ForkedProcess(*command, *flags, env=environment(folder))
    server = SeveralWorkers(process, store)
    try:
        await server.wait_ready(workers)
        yield server
    finally:
        server.close()
        await server.wait_ended()
        process.close()
