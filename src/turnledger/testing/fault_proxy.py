"""A fault proxy: stands between a client and a server on the loopback, and cuts or stalls their connection
after exactly so many bytes, or on command.

async with FaultProxy(port) as proxy:
    proxy.plan(Fault(received=300))             # the next connection is cut when its client got 300 bytes
    ...                                         # a client that connects to proxy.port
    await proxy.faulted()
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

_PIECE = 65_536
_RESET = struct.pack("ii", 1, 0)
"""Linger for no time: a close then resets the connection."""


@dataclass(frozen=True)
class Fault:
    """What happens to one connection, once its client has sent or received so many bytes. These bytes arrive,
    and not one more. Having received 0, it happens when the server begins to answer."""

    sent: int | None = None
    received: int | None = None
    stalls: bool = False
    """Nothing passes any more, either way, and both ends stay connected; else it is cut."""
    resets: bool = False
    """It is cut by a reset, as a dead machine or a strict firewall does: what was on its way may be lost."""


class FaultProxy:
    """Passes connections on to a port of this machine. Each takes the next planned fault, if there is one."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._plans: deque[Fault | None] = deque()
        self._listening: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._changed = asyncio.Event()
        self.port = 0
        """Where clients connect."""
        self.connections = 0
        """How many connections reached the server."""
        self.faults = 0
        """How many connections were cut or stalled."""

    async def __aenter__(self) -> FaultProxy:
        self._listening = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening is not None
        self._listening.close()
        tasks = [line.task for line in self._lines]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def plan(self, *faults: Fault | None) -> None:
        """Say what happens to the next connections, one each; None: nothing."""
        self._plans.extend(faults)

    def cut(self, *, resets: bool = False) -> None:
        """Cut all connections now."""
        for line in list(self._lines):
            line.resets = resets
            line.over.set()

    def stall(self) -> None:
        """Let nothing pass any more on the connections that are there."""
        for line in self._lines:
            line.flows.clear()

    def resume(self) -> None:
        """Let everything pass again that was stalled, and ends no more by itself."""
        for line in self._lines:
            line.fault = None
            line.flows.set()

    async def faulted(self, count: int = 1) -> None:
        """Wait until so many connections were cut or stalled."""
        while self.faults < count:
            self._changed.clear()
            await self._changed.wait()

    def note_fault(self) -> None:
        self.faults += 1
        self._changed.set()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        fault = self._plans.popleft() if self._plans else None
        line = _Line(self, task, fault)
        self._lines.add(line)
        writers = [writer]
        try:
            server = await asyncio.open_connection("127.0.0.1", self._server_port)
            self.connections += 1
            writers.append(server[1])
            await line.carry((reader, writer), server)
        except (OSError, asyncio.CancelledError):
            line.resets = True
        finally:
            self._lines.discard(line)
            for each in writers:
                _close(each, resets=line.resets)


class _Line:
    """One connection through the proxy."""

    def __init__(self, proxy: FaultProxy, task: asyncio.Task[None], fault: Fault | None) -> None:
        self._proxy = proxy
        self.task = task
        self.fault = fault
        self.flows = asyncio.Event()
        self.flows.set()
        self.over = asyncio.Event()
        self.resets = False

    async def carry(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Pass bytes both ways until one end closes, or the fault comes."""
        ways = [
            asyncio.create_task(self._pump(client[0], server[1], "sent")),
            asyncio.create_task(self._pump(server[0], client[1], "received")),
            asyncio.create_task(self.over.wait()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        passed = 0
        with suppress(OSError):
            while True:
                limit = self._limit(way)
                if limit is not None and passed >= limit:
                    held = await reader.read(1) if limit == 0 and way == "received" else b""
                    if await self._fail():
                        return
                    writer.write(held)
                    continue
                piece = await reader.read(_PIECE if limit is None else limit - passed)
                await self.flows.wait()
                if not piece:
                    return
                writer.write(piece)
                passed += len(piece)
                await writer.drain()

    def _limit(self, way: str) -> int | None:
        if self.fault is None:
            return None
        return self.fault.sent if way == "sent" else self.fault.received

    async def _fail(self) -> bool:
        """The fault comes; whether that is the end."""
        assert self.fault is not None
        self.resets = self.fault.resets
        stalls = self.fault.stalls
        if stalls:
            self.flows.clear()
        self._proxy.note_fault()
        if stalls:
            await self.flows.wait()
        return not stalls


def _close(writer: asyncio.StreamWriter, *, resets: bool) -> None:
    """Close a connection: what was written leaves first, unless it is reset."""
    if not resets:
        writer.close()
        return
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
