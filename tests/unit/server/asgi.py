"""Requests to an ASGI application without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from turnledger import Ledger
from turnledger.errors import TurnledgerError
from turnledger.server.app import NATIVE, App, all_endpoints, make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.requests.body import read_body
from turnledger.server.service import Service

HOST = (b"host", b"localhost:8383")
JSON = (b"content-type", b"application/json")
ENDLESS = "/api/events"
"""A stream without an end: `fetch` disconnects after its first event."""
Headers = Iterable[tuple[bytes, bytes]]


class Reply(msgspec.Struct):
    status: int = 0
    headers: list[tuple[bytes, bytes]] = []
    body: bytes = b""
    is_whole: bool = False

    def header(self, name: bytes) -> bytes | None:
        found = [value for each, value in self.headers if each == name]
        assert len(found) < 2
        return found[0] if found else None

    @property
    def conversation(self) -> str:
        return (self.header(b"x-conversation-id") or b"").decode()

    @property
    def turn(self) -> str:
        return (self.header(b"x-turn-id") or b"").decode()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def summary(self) -> str:
        return f"{self.status} {self.body[:500]!r}"

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


async def fetch(
    app: App,
    path: str = "/healthz",
    *,
    method: str = "GET",
    headers: Headers = (HOST,),
    parts: Sequence[bytes] = (b"",),
    leaves: bool = False,
    query: bytes | None = None,
) -> Reply:
    """Send a request with its body in parts; with `leaves` the client disconnects after them, and without
    parts its body never arrives. By default the query has a secret that no log may contain."""
    reply = Reply()
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if messages:
        messages[-1]["more_body"] = leaves
    messages.reverse()
    received = asyncio.Event()

    async def receive() -> Message:
        if messages:
            return messages.pop()
        if leaves:
            return {"type": "http.disconnect"}
        await received.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not reply.status, "answered twice"
            reply.status, reply.headers = message["status"], list(message["headers"])
        else:
            assert reply.status, "a body before its head"
            assert not reply.is_whole, "more after the end"
            reply.body += message.get("body", b"")
            reply.is_whole = not message.get("more_body", False)
            if path == ENDLESS:
                received.set()

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": list(headers),
        "query_string": query if query is not None else b"" if path.startswith(NATIVE) else b"token=secret",
    }
    await app(scope, receive, send)
    return reply


class Echo:
    def __init__(self, settings: Settings) -> None:
        self._limits = settings.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(scope, receive, limit=self._limits.body_bytes, wait=self._limits.body_wait)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


class StreamingEndpoint:
    """Sends hello, then waits for its release or cancellation, which it records."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello,", "more_body": True})
        self.has_begun.set()
        last = b" done"
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            last = b" cancelled"
        await send({"type": "http.response.body", "body": last})


async def breaks(_: Request) -> Response:
    raise ValueError("private text")


async def is_busy(_: Request) -> Response:
    raise TurnledgerError


@asynccontextmanager
async def run_app(settings: Settings | None = None, *more: Endpoint) -> AsyncIterator[App]:
    """Run an application on an empty ledger, with additional endpoints."""
    settings = settings or Settings()
    async with await Ledger.open() as ledger:
        if not more:
            yield make_app(ledger, Models({}), settings)
            return
        service = Service(ledger, Models({}), settings)
        yield App(service, [*all_endpoints(service), *more])


def endpoint(path: str, answer: Any, method: str = "GET") -> Endpoint:
    return Endpoint(route=f"{method} {path}", handler=answer, summary="For a test.")


def echo(settings: Settings) -> Endpoint:
    return endpoint("/echo", Echo(settings), "POST")
