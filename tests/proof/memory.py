"""Memory is given back: it is flat after refused requests, small and of 31 MB, and in a soak."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from bench.http.__main__ import RunningServer, started
from bench.soak import run as soak

SECONDS = 900
RUN = "from turnledger.cli import main; main()"
LARGE = 31_000_000
REFUSED, LARGE_ONES = 10_000, 24
MEGABYTE = 1 << 20
HEADERS = "Host: localhost\r\nContent-Type: application/json\r\n"
CHAT = "X-Conversation-Id: k\r\n"


class Refused(NamedTuple):
    """A request, and the codes with which it may be refused."""

    request: bytes
    codes: tuple[str, ...]


def post(body: bytes, path: str = "/v1/chat/completions", chat: str = CHAT) -> bytes:
    head = f"POST {path} HTTP/1.1\r\n{HEADERS}{chat}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def refused(size: int) -> list[Refused]:
    """Requests of about so many bytes that the server refuses, each for another reason."""
    text = "x" * size
    message = {"role": "nobody", "content": text}
    unknown = msgspec.json.encode({"model": "nobody", "messages": [{**message, "role": "user"}]})
    item = msgspec.json.encode({"model": "demo", "input": [{"type": text[:50], "x": text}]})
    many = b'{"model": "demo", "messages": [%b{}]}' % (b'{"role":"user","content":"x"},' * (size // 30))
    return [
        Refused(post(b"{" + text.encode()), ("malformed_json",)),
        Refused(post(msgspec.json.encode({"model": "demo", "messages": [message]})), ("no_new_input",)),
        Refused(post(unknown), ("model_not_found",)),
        Refused(post(item, "/api/turns", ""), ("no_new_input", "malformed_items")),
        Refused(post(many), ("malformed_items", "too_many_values")),
    ]


async def fetch(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def send(port: int, requests: Sequence[Refused], count: int, at_once: int) -> None:
    waiting = iter(range(count))

    async def client() -> None:
        for number in waiting:
            request, codes = requests[number % len(requests)]
            head, _, body = (await fetch(port, request)).partition(b"\r\n\r\n")
            assert head[9:10] == b"4", head
            assert msgspec.json.decode(body)["error"]["code"] in codes, body[:300]

    await asyncio.gather(*(client() for _ in range(at_once)))


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[RunningServer]:
    flags = ("--port", "0", "--store", f"sqlite:///{folder}/chats.db", "--log-level", "error")
    with started("-c", RUN, "serve", *flags) as running:
        yield running


async def measure(folder: Path) -> None:
    small, large = refused(1_000), refused(LARGE)
    async with server(folder) as running:
        await send(running.port, small, 1_000, 16)
        at_first = running.memory()
        await send(running.port, small, REFUSED, 16)
        after_many = running.memory()
        await send(running.port, large, LARGE_ONES, 1)
        after_large = running.memory()
    grown = (after_many - at_first) / MEGABYTE
    left = (after_large - after_many) / MEGABYTE
    print(f"{REFUSED:,} refused requests: {grown:.1f} MB more; {LARGE_ONES} of 31 MB: {left:.1f} MB left")
    assert grown < 10
    assert left < 200


def prove() -> None:
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        is_flat = soak(Path(folder), 5.0, 45.0)
    sys.stdout.flush()
    assert is_flat
