"""A proxy on the loopback that cuts, stalls, delays or duplicates connections at an exact byte or on command.

async with FaultProxy(port) as proxy:
    proxy.plan(Fault(received=300))             # the next connection is cut when its client got 300 bytes
    ...                                         # a client that connects to proxy.port
    await proxy.wait_for_faults()
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PIECE = 65_536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds, so that close resets the connection."""
_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Fault:
    """A fault of one connection, after its client sent or received exactly this many bytes. `received=0`:
    when the server begins to answer."""

    sent: int | None = None
    received: int | None = None
    stalls: bool = False
    """No bytes pass either way, and both ends stay connected; otherwise the connection is cut."""
    resets: bool = False
    """Cut by a reset, as a dead machine or a strict firewall does: bytes in flight may be lost."""
    pause: float | None = None
    """Instead, no bytes pass for this many seconds; the rest arrives later as a second piece."""
    duplicates: bool = False
    """Instead, the server receives the bytes of the client again, over another connection whose answer is
    discarded. With `received`, the server begins to answer the copy before the client receives more."""

    @property
    def cuts(self) -> bool:
        return not (self.stalls or self.duplicates or self.pause is not None)


@dataclass
class Exchange:
    """Bytes that passed on a connection, or for one request and its answer."""

    fault: Fault | None = None
    sent: int = 0
    received: int = 0


class FaultProxy:
    """Forwards connections to a port of this machine, or to a Unix socket. Each takes the next planned fault,
    if any.

    With `by_exchange`, each request takes one and counts its own bytes: bytes that a client sends after an
    answer began are the next request. Requests that begin with `spared` take none: `b"OPTIONS "` for
    preflights.
    """

    def __init__(
        self, server_port: int | Path, *, by_exchange: bool = False, spared: bytes | None = None
    ) -> None:
        self.server_port = server_port
        """Target of the next connections."""
        self.by_exchange = by_exchange
        self._spared = spared
        self._plans: deque[Fault | None] = deque()
        self._listening: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._is_closed = False
        self._changed = asyncio.Event()
        self.port = 0
        self.connections = 0
        """Connections that reached the server."""
        self.faults = 0
        """Connections that were cut, stalled, delayed or duplicated."""
        self.exchanges: list[Exchange] = []
        """In the order in which they began."""

    async def __aenter__(self) -> FaultProxy:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        await self.refuse()
        tasks = [line.task for line in self._lines]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def plan(self, *faults: Fault | None) -> None:
        """Plan one fault for each of the next connections; None for no fault."""
        self._plans.extend(faults)

    def forget_plans(self) -> None:
        self._plans.clear()

    async def accept(self) -> None:
        """Accept connections, at the same port as before."""
        if self._listening is None:
            self._listening = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)
            self.port = self._listening.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse new connections, as a dead server does; existing ones stay."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def cut(self, *, resets: bool = False, only_stalled: bool = False) -> None:
        """Cut all connections now, or only the stalled ones."""
        for line in list(self._lines):
            if only_stalled and line.flows.is_set():
                continue
            line.resets = resets
            line.over.set()

    def stall(self) -> None:
        for line in self._lines:
            line.flows.clear()

    def resume(self) -> None:
        """Resume stalled connections and cancel the faults of all existing ones."""
        for line in self._lines:
            line.exchange.fault = None
            line.flows.set()

    async def wait_for_faults(self, count: int = 1) -> None:
        while self.faults < count:
            self._changed.clear()
            await self._changed.wait()

    def note_fault(self) -> None:
        self.faults += 1
        self._changed.set()

    async def connect(self) -> _Ends:
        """Connect to the server."""
        if isinstance(self.server_port, Path):
            return await asyncio.open_unix_connection(self.server_port)
        return await asyncio.open_connection("127.0.0.1", self.server_port)

    def next_exchange(self, begin: bytes = b"") -> Exchange:
        if self._spared is not None and begin.startswith(self._spared):
            return Exchange()
        self.exchanges.append(Exchange(self._plans.popleft() if self._plans else None))
        return self.exchanges[-1]

    def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:  # accepted before the end of listening
            _close(writer, resets=True)
            return
        line = _Line(self, (reader, writer))
        self._lines.add(line)
        # Not in the task, which may be cancelled before it begins, or twice.
        line.task.add_done_callback(lambda _: self._end(line))

    def _end(self, line: _Line) -> None:
        self._lines.discard(line)
        line.close()


class _Line:
    """One connection through the proxy."""

    def __init__(self, proxy: FaultProxy, client: _Ends) -> None:
        self._proxy = proxy
        self._client = client
        self._writers = [client[1]]
        self.task = asyncio.create_task(self._run())
        self.exchange = Exchange() if proxy.by_exchange else proxy.next_exchange()
        self.flows = asyncio.Event()
        self.flows.set()
        self.over = asyncio.Event()
        self.resets = False
        self._has_begun = not proxy.by_exchange
        self._sent = b""
        """Bytes of the client in this exchange, if they will be duplicated."""
        self._copies: list[_Copy] = []
        self._echo: _Copy | None = None
        """Receives the rest of the bytes of this exchange, too."""

    def close(self) -> None:
        for copy in self._copies:
            copy.close()
        for writer in self._writers:
            _close(writer, resets=self.resets)

    async def _run(self) -> None:
        try:
            server = await self._proxy.connect()
            self._proxy.connections += 1
            self._writers.append(server[1])
            await self._carry(server)
        except (OSError, asyncio.CancelledError):
            self.resets = True

    async def _carry(self, server: _Ends) -> None:
        """Forward bytes both ways until one end closes or a fault cuts the connection."""
        ways = [
            asyncio.create_task(self._pump(self._client[0], server[1], "sent")),
            asyncio.create_task(self._pump(server[0], self._client[1], "received")),
            asyncio.create_task(self.over.wait()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

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
            self._sent, self._echo = b"", None
            self.exchange = self._proxy.next_exchange(piece)

    async def _pass(self, piece: bytes, writer: asyncio.StreamWriter, way: str) -> bool:
        """Forward a piece, at most up to the fault; return whether the connection continues."""
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
                self._sent += piece
            if self._echo is not None:
                self._echo.write(piece)
        await writer.drain()

    def _limit(self, way: str) -> int | None:
        fault = self.exchange.fault
        if fault is None:
            return None
        return fault.sent if way == "sent" else fault.received

    async def _fail(self, way: str) -> bool:
        """Apply the fault; return whether it cuts the connection."""
        fault = self.exchange.fault
        assert fault is not None
        self.resets = fault.resets
        if fault.cuts:
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
        copy = _Copy(*await self._proxy.connect())
        self._copies.append(copy)
        copy.write(self._sent)
        if waits:
            await copy.answered.wait()
        else:
            self._echo = copy


class _Copy:
    """A second connection with the same bytes; its answer is read and discarded."""

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
    """Close a connection, flushing it first unless it is reset."""
    if not resets:
        writer.close()
        return
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
