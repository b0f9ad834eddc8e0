"""The server in the loop of the test, on a real socket, and a raw client."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from turnledger import Ledger, Limits
from turnledger.engine.ports import Clock, Store
from turnledger.hosting import Host
from turnledger.runners.chat_model import ChatModel
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import Settings
from turnledger.server.listen.protocol import bounded_http
from turnledger.server.models.models import Models, ResolvedModel
from turnledger.stores.memory import MemoryStore

SMALL = 4_096
TCP_REPAIR = 19
"""A socket option of Linux: what is closed in this state is closed without a word."""


class TcpServer:
    """A server over TCP, with waits for the states of its connections and turns."""

    def __init__(self, ledger: Ledger, app: App) -> None:
        self.ledger = ledger
        self.app = app
        self.port = 0
        self.connections: list[asyncio.Transport] = []
        self.state = ServerState()
        self.lost = 0
        self._open_requests = 0
        self._changed = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open_requests += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._open_requests -= 1
            self._changed.set()

    def note_made(self, transport: asyncio.Transport) -> None:
        self.connections.append(transport)
        self._changed.set()

    def note_lost(self) -> None:
        self.lost += 1
        self._changed.set()

    async def wait_at_rest(self, connections: int) -> None:
        """Wait until this many connections were lost and no request is open."""
        await self._until(lambda: self.lost >= connections and not self._open_requests)

    async def wait_all_lost(self, connections: int) -> None:
        await self._until(lambda: self.lost >= connections)

    async def wait_connected(self, connections: int) -> None:
        await self._until(lambda: len(self.connections) >= connections)

    async def wait_running(self) -> None:
        while not Host(self.ledger).at_work().running:
            await asyncio.sleep(0)

    async def wait_queued(self, turns: int) -> None:
        while Host(self.ledger).at_work().waiting != turns:
            await asyncio.sleep(0)

    async def wait_answered(self, requests: int = 0) -> None:
        """Wait until at most this many requests are open."""
        await self._until(lambda: self._open_requests <= requests)

    async def stop_everything(self) -> None:
        await self.app.drain(0.0)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def run_tcp_server(
    model: ChatModel,
    settings: Settings | None = None,
    *,
    store: Store | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
    send_buffer: int | None = None,
    listening: socket.socket | None = None,
) -> AsyncIterator[TcpServer]:
    """Serve a model as `demo` over an empty ledger, on the given socket or a new one."""
    async with await Ledger.over(store or MemoryStore(), clock=clock, limits=limits) as ledger:
        settings = settings or Settings()
        app = make_app(ledger, Models({"demo": ResolvedModel(model, "demo")}), settings)
        serving = TcpServer(ledger, app)
        http = bounded_http(settings.limits)
        config = uvicorn.Config(serving, http=http, ws="none", lifespan="off", log_config=None)
        config.load()

        class Protocol(http):  # type: ignore[valid-type, misc]
            def connection_made(self, transport: asyncio.Transport) -> None:
                serving.note_made(transport)
                if send_buffer is not None:
                    kernel = transport.get_extra_info("socket")
                    kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
                super().connection_made(transport)

            def connection_lost(self, problem: Exception | None) -> None:
                super().connection_lost(problem)
                serving.note_lost()

        def protocol() -> Protocol:
            return Protocol(config=config, server_state=serving.state, app_state={})

        loop = asyncio.get_running_loop()
        server = await (
            loop.create_server(protocol, sock=listening)
            if listening is not None
            else loop.create_server(protocol, "127.0.0.1", 0)
        )
        serving.port = server.sockets[0].getsockname()[1]
        app.background.start()
        try:
            yield serving
        finally:
            await app.background.close()
            server.close()
            for connection in list(serving.state.connections):
                connection.transport.abort()
            await serving.wait_answered()


def request(
    path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST", **headers: str
) -> bytes:
    """Return the bytes of a request; `x_turn_on_stop` is the header X-Turn-On-Stop."""
    raw = b"" if body is None else msgspec.json.encode(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def completion(text: str, *, stream: bool = True, **headers: str) -> bytes:
    """Return the bytes of a chat completion."""
    body = {"model": "demo", "messages": [{"role": "user", "content": text}], "stream": stream}
    return request("/v1/chat/completions", body, **headers)


class PartialResponse:
    """The part of a response received so far."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.is_over = False
        """Whether the connection is closed."""
        self._changed = asyncio.Event()

    def take(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.is_over = not piece
        self._changed.set()

    async def until(self, condition: Callable[[PartialResponse], bool]) -> None:
        """Wait until the received part meets a condition."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    @property
    def raw(self) -> bytes:
        self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    @property
    def headers(self) -> dict[str, str]:
        head, whole, _ = self.raw.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")[1:] if whole else []
        return dict(line.split(": ", 1) for line in lines)

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def body(self) -> bytes:
        rest = self.raw.partition(b"\r\n\r\n")[2]
        if "content-length" in self.headers:
            return rest
        chunks, place = [], 0
        while (end := rest.find(b"\r\n", place)) >= 0 and (size := int(rest[place:end], 16)):
            place = end + 2 + size + 2
            chunks.append(rest[end + 2 : place - 2])
        return b"".join(chunks)

    @property
    def payloads(self) -> list[bytes]:
        """Payloads of complete server-sent events."""
        events = self.body.split(b"\n\n")[:-1]
        return [line[6:] for event in events for line in event.split(b"\n") if line.startswith(b"data: ")]

    @property
    def is_whole(self) -> bool:
        if "content-length" in self.headers:
            return len(self.body) == int(self.headers["content-length"])
        return self.raw.endswith(b"\r\n0\r\n\r\n")

    @property
    def text(self) -> str:
        """Text of the model."""
        chunks = [msgspec.json.decode(each) for each in self.payloads if each != b"[DONE]"]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
        return "".join(delta.get("content") or "" for delta in deltas)


async def exchange(port: int, sent: bytes, response: PartialResponse | None = None) -> PartialResponse:
    """Send a request and receive until the connection closes."""
    response = response or PartialResponse()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(sent)
            while piece := await reader.read(65_536):
                response.take(piece)
        finally:
            writer.close()
    except ConnectionError:
        pass
    response.take(b"")
    return response


def reset(writer: asyncio.StreamWriter) -> None:
    """Leave without a good-bye."""
    kernel = writer.get_extra_info("socket")
    kernel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class SlowClient:
    """Sends its request, and reads only when the test reads."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def send(self, port: int, sent: bytes) -> None:
        await self._loop.sock_connect(self._socket, ("127.0.0.1", port))
        await self._loop.sock_sendall(self._socket, sent)

    async def read_all(self) -> PartialResponse:
        response = PartialResponse()
        while piece := await self._loop.sock_recv(self._socket, 65_536):
            response.take(piece)
        self._socket.close()
        return response

    async def read_until(self, end: bytes) -> None:
        received = b""
        while end not in received:
            received += await self._loop.sock_recv(self._socket, 65_536)

    def leave(self) -> None:
        self._socket.close()

    def vanish(self) -> None:
        """Close without a packet to the peer, as when the machine loses its power."""
        self._socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        self._socket.close()
