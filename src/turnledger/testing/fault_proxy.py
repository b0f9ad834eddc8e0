"""A fault proxy: stands between a client and a server on the loopback, and cuts, stalls, delays or duplicates
what they say after exactly so many bytes, or on command.

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
_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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
    pause: float | None = None
    """Instead, nothing passes for so many seconds, and then everything does: it is late, and comes in two
    pieces."""
    duplicates: bool = False
    """Instead, what the client says reaches the server a second time, over a connection of its own whose
    answer nobody reads. Where bytes were received, the server has begun to answer it before one more is."""

    @property
    def ends_it(self) -> bool:
        """Whether the connection is cut."""
        return not (self.stalls or self.duplicates or self.pause is not None)


@dataclass
class Exchange:
    """How many bytes have passed: of a connection, or of one request and its answer."""

    fault: Fault | None = None
    sent: int = 0
    received: int = 0


class FaultProxy:
    """Passes connections on to a port of this machine. Each takes the next planned fault, if there is one.

    With `by_exchange`, each request takes one: what a client sends after an answer has begun is the next
    request, over whichever connection it comes. Bytes are counted from there. Requests that begin with
    `spared` take none: `b"OPTIONS "`, for what browsers ask beforehand."""

    def __init__(self, server_port: int, *, by_exchange: bool = False, spared: bytes | None = None) -> None:
        self.server_port = server_port
        """Where connections are passed on to, from the next one on."""
        self.by_exchange = by_exchange
        self._spared = spared
        self._plans: deque[Fault | None] = deque()
        self._listening: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._changed = asyncio.Event()
        self.port = 0
        """Where clients connect."""
        self.connections = 0
        """How many connections reached the server."""
        self.faults = 0
        """How many connections were cut, stalled, delayed or doubled."""
        self.exchanges: list[Exchange] = []
        """What has passed, in the order in which it was begun."""

    async def __aenter__(self) -> FaultProxy:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()
        tasks = [line.task for line in self._lines]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def plan(self, *faults: Fault | None) -> None:
        """Say what happens to the next connections, one each; None: nothing."""
        self._plans.extend(faults)

    def forget_plans(self) -> None:
        """Nothing more happens than has."""
        self._plans.clear()

    async def accept(self) -> None:
        """Take connections, at the same port as before."""
        if self._listening is None:
            self._listening = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)
            self.port = self._listening.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Take no more connections, as a server that is not there. Those that are there stay."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def cut(self, *, resets: bool = False, only_stalled: bool = False) -> None:
        """Cut all connections now, or those on which nothing passes."""
        for line in list(self._lines):
            if only_stalled and line.flows.is_set():
                continue
            line.resets = resets
            line.over.set()

    def stall(self) -> None:
        """Let nothing pass any more on the connections that are there."""
        for line in self._lines:
            line.flows.clear()

    def resume(self) -> None:
        """Let everything pass again that was stalled, and ends no more by itself."""
        for line in self._lines:
            line.exchange.fault = None
            line.flows.set()

    async def faulted(self, count: int = 1) -> None:
        """Wait until so many connections were cut, stalled, delayed or doubled."""
        while self.faults < count:
            self._changed.clear()
            await self._changed.wait()

    def note_fault(self) -> None:
        self.faults += 1
        self._changed.set()

    def next_exchange(self, begin: bytes = b"") -> Exchange:
        """The next one, with what is planned for it."""
        if self._spared is not None and begin.startswith(self._spared):
            return Exchange()
        self.exchanges.append(Exchange(self._plans.popleft() if self._plans else None))
        return self.exchanges[-1]

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        line = _Line(self, task)
        self._lines.add(line)
        writers = [writer]
        try:
            server = await asyncio.open_connection("127.0.0.1", self.server_port)
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

    def __init__(self, proxy: FaultProxy, task: asyncio.Task[None]) -> None:
        self._proxy = proxy
        self.task = task
        self.exchange = Exchange() if proxy.by_exchange else proxy.next_exchange()
        self.flows = asyncio.Event()
        self.flows.set()
        self.over = asyncio.Event()
        self.resets = False
        self._has_begun = not proxy.by_exchange
        self._said = b""
        """What the client said in this exchange, if it is to be said twice."""
        self._copies: list[_Copy] = []
        self._echo: _Copy | None = None
        """Where the rest of what the client says in this exchange is said, too."""

    async def carry(self, client: _Ends, server: _Ends) -> None:
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
            for copy in self._copies:
                copy.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with suppress(OSError):
            if way == "sent" and self._has_begun and self._limit(way) == 0 and await self._fail(way):
                return
            while piece := await reader.read(_PIECE):
                await self.flows.wait()
                if way == "sent":
                    self._begin_if_new(piece)
                if not await self._pass(piece, writer, way):
                    return

    def _begin_if_new(self, piece: bytes) -> None:
        if self._proxy.by_exchange and (self.exchange.received or not self._has_begun):
            self._has_begun = True
            self._said, self._echo = b"", None
            self.exchange = self._proxy.next_exchange(piece)

    async def _pass(self, piece: bytes, writer: asyncio.StreamWriter, way: str) -> bool:
        """Pass a piece on, up to where the fault comes; whether there is more to come."""
        limit = self._limit(way)
        if limit is not None:
            room = limit - getattr(self.exchange, way)
            if len(piece) >= room:
                await self._write(piece[:room], writer, way)
                piece = piece[room:]
                if await self._fail(way):
                    return False
        await self._write(piece, writer, way)
        return True

    async def _write(self, piece: bytes, writer: asyncio.StreamWriter, way: str) -> None:
        if not piece:
            return
        exchange = self.exchange
        if writer.is_closing():
            raise ConnectionResetError
        writer.write(piece)
        setattr(exchange, way, getattr(exchange, way) + len(piece))
        if way == "sent":
            if exchange.fault is not None and exchange.fault.duplicates:
                self._said += piece
            if self._echo is not None:
                self._echo.write(piece)
        await writer.drain()

    def _limit(self, way: str) -> int | None:
        fault = self.exchange.fault
        if fault is None:
            return None
        return fault.sent if way == "sent" else fault.received

    async def _fail(self, way: str) -> bool:
        """The fault comes; whether that is the end."""
        fault = self.exchange.fault
        assert fault is not None
        self.resets = fault.resets
        if fault.ends_it:
            self._proxy.note_fault()
            return True
        if fault.duplicates:
            await self._duplicate(waits=way == "received")
        self.exchange.fault = None
        if fault.pause is not None or fault.stalls:
            self.flows.clear()
        self._proxy.note_fault()
        if fault.pause is not None:
            await asyncio.sleep(fault.pause)
            self.flows.set()
        await self.flows.wait()
        return False

    async def _duplicate(self, *, waits: bool) -> None:
        copy = _Copy(*await asyncio.open_connection("127.0.0.1", self._proxy.server_port))
        self._copies.append(copy)
        copy.write(self._said)
        if waits:
            await copy.answered.wait()
        else:
            self._echo = copy  # there may be more to say


class _Copy:
    """A second connection that says the same. It is read to its end, and its answer is nobody's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.answered = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    def write(self, piece: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(piece)

    def close(self) -> None:
        self._reading.cancel()
        _close(self._writer, resets=False)

    async def _read(self) -> None:
        with suppress(OSError):
            while await self._reader.read(_PIECE):
                self.answered.set()
        self.answered.set()


def _close(writer: asyncio.StreamWriter, *, resets: bool) -> None:
    """Close a connection: what was written leaves first, unless it is reset."""
    if not resets:
        writer.close()
        return
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
