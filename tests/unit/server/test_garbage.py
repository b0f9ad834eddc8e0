"""What a request held is free when its connection is closed, without a garbage collection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import msgspec
import pytest

from turnledger.server.config.settings import Settings
from turnledger.server.listen.serve import Server, opened
from turnledger.server.listen.socket import bind

HEADERS = "Host: localhost\r\nContent-Type: application/json\r\n"
OURS = ("turnledger.", "uvicorn.", "httptools.", "uvloop.")


def post(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    named = "".join(f"{each}\r\n" for each in headers)
    head = f"POST {path} HTTP/{version}\r\n{HEADERS}{named}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def completion(text: str, *, stream: bool = False, role: str = "user", key: str = "k") -> bytes:
    body = {"model": "demo", "stream": stream, "messages": [{"role": role, "content": text}]}
    headers = (f"X-Conversation-Id: {key}", "X-Conversation-Messages: new")
    return post("/v1/chat/completions", msgspec.json.encode(body), *headers)


def api_turn(**fields: object) -> bytes:
    return post("/api/turns", msgspec.json.encode({"model": "demo", "input": "Hello", **fields}))


REQUESTS = {
    "a turn": completion("Hello"),
    "a streamed turn": completion("Hello", stream=True),
    "a turn of the native API": api_turn(),
    "its stream": api_turn(stream=True),
    "a turn whose model fails": completion("/fail after 2"),
    "a stream whose model fails": completion("/fail after 2", stream=True),
    "a refused message": completion("Hello", role="nobody"),
    "a body that is not JSON": post("/v1/chat/completions", b"{" + b"x" * 100_000, "X-Conversation-Id: k"),
    "no such model": api_turn(model="nobody"),
    "no such path": b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no such chat": b"GET /api/chats/conv_%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"0" * 32),
    "not HTTP": b"nothing at all\r\n\r\n",
    "an old protocol": b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n",
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    "too large a head": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: %b\r\n\r\n" % (b"a" * 70_000),
    "too many values": post("/api/turns", b'{"input": [%b0]}' % (b"0," * 400_001)),
    "no such conversation": completion("Hello", key="conv_01890000000070008000000000000000"),
    "several at once": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3,
    "half a body": post("/v1/chat/completions", b"x" * 5_000)[:-1_000],
}


@asynccontextmanager
async def serving(store: str) -> AsyncIterator[int]:
    settings = Settings(port=0, store=store, log_level="error")
    with bind(settings) as listening:
        async with opened(settings, {}, listening) as app:
            is_up = asyncio.Event()
            server = Server(app, is_up.set)
            answering = asyncio.create_task(server.answer_at(listening))
            await is_up.wait()
            yield listening.getsockname()[1]
            server.end()
            await answering


async def asked_and_left(port: int, request: bytes, at_rest: set[asyncio.Task[object]]) -> None:
    """Send a request, read what comes first, and leave; wait until the server has done with it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if b"Content-Length: 5000" not in request:
        await reader.read(65_536)
    writer.close()
    await writer.wait_closed()
    while asyncio.all_tasks() - at_rest:
        await asyncio.sleep(0)


@pytest.fixture
def collector() -> Iterator[None]:
    """Switch the collector off, have it keep what it finds, and pass by everything that is there already."""
    gc.collect()
    gc.disable()
    gc.freeze()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def is_ours(found: object) -> bool:
    if isinstance(found, FrameType):
        return "turnledger" in found.f_code.co_filename
    return type(found).__module__.startswith(OURS)


async def test_requests_of_every_kind_leave_no_cycles(tmp_path: Path, collector: None) -> None:
    async with serving(f"sqlite:///{tmp_path}/chats.db") as port:
        at_rest = asyncio.all_tasks()
        left = {}
        for what, request in REQUESTS.items():
            await asked_and_left(port, request, at_rest)  # what is made once is made now
            gc.collect()
            gc.garbage.clear()
            for _ in range(2):
                await asked_and_left(port, request, at_rest)
            gc.collect()
            left[what] = [repr(found)[:200] for found in gc.garbage if is_ours(found)]
            gc.garbage.clear()
        assert left == {what: [] for what in REQUESTS}
