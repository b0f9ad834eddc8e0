"""The load: connections that send a request, read the whole response, and repeat. Written to cost little."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import cast


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self._waiting: asyncio.Future[None] | None = None
        self._received = bytearray()
        self._length: int | None = None
        self.first_at = 0.0
        self.body_starts = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def fetch(self, request: bytes, status: bytes = b"200") -> bytes:
        """Send a request, and return the response with its head; raises if it has another status."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._received.clear()
        self.first_at = 0.0
        self.transport.write(request)
        await self._waiting
        answer = bytes(self._received)
        if not answer.startswith(b"HTTP/1.1 " + status):
            raise RuntimeError(answer[:2000].decode(errors="replace"))
        return answer

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self.first_at:
            at = received.find(b"\r\n\r\n")
            if at < 0 or len(received) == at + 4:
                return
            self.first_at = time.perf_counter()
            head = bytes(received[:at]).lower()
            _, found, length = head.partition(b"content-length:")
            self._length = at + 4 + int(length.partition(b"\r\n")[0]) if found else None
        is_whole = received.endswith(b"0\r\n\r\n") if self._length is None else len(received) >= self._length
        if is_whole and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionError(bytes(self._received[:500])))


def request(body: bytes, headers: Sequence[str] = (), path: str = "/v1/chat/completions") -> bytes:
    lines = [
        f"{'POST' if body else 'GET'} {path} HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


async def connect(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


async def rate(port: int, clients: int, each: int, make: Callable[[int, int], bytes]) -> float:
    """Return requests per second of `clients` clients that send `each` requests; `make` makes the n-th of a
    client."""
    connected = [await connect(port) for _ in range(clients)]

    async def run(place: int) -> None:
        for number in range(each):
            await connected[place].fetch(make(place, number))

    started = time.perf_counter()
    await asyncio.gather(*map(run, range(clients)))
    took = time.perf_counter() - started
    for client in connected:
        client.transport.close()
    return clients * each / took
