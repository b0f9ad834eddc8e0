"""A server that sends exact bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class ServerConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number
        """Number of earlier connections."""

    async def request(self) -> bytes:
        """Read the next request, with its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length:")
        return head + await self.reader.readexactly(int(length.partition(b"\r\n")[0] or 0))

    async def send(self, *pieces: bytes) -> None:
        """Send the pieces, with a step of the loop between them."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def reset(self) -> None:
        """Reset the connection."""
        plug = self.writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def is_closed(self) -> bool:
        """Wait until the client closes the connection."""
        with suppress(ConnectionError):
            await self.reader.read()
        return True


Behaviour = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def run_raw_server(behave: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve, and yield the port; a connection ends with its behaviour. Raises errors at the end, except those
    of disconnected clients."""
    running: set[asyncio.Task[None]] = set()
    problems: list[BaseException] = []
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        connection = ServerConnection(reader, writer, count)
        count += 1
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await behave(connection)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except BaseException as problem:
            problems.append(problem)
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    if problems:
        raise problems[0]


def answer_with(*pieces: bytes) -> Behaviour:
    """Answer every request with these bytes."""

    async def behave(connection: ServerConnection) -> None:
        while True:
            await connection.request()
            await connection.send(*pieces)

    return behave


def answer_once(*pieces: bytes) -> Behaviour:
    """Answer one request, then close."""

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(*pieces)

    return behave


def fall_silent_after(*pieces: bytes) -> Behaviour:
    """Answer one request with these bytes, and wait until the client leaves."""

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(*pieces)
        assert await connection.is_closed()

    return behave
