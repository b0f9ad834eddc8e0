"""A server for a test: uvicorn on a loop in another thread, over a gated store, with the demo model as `demo`
and a scripted upstream under every other name.

with run_server(["Hel", "lo"]) as served:
    client = served.client("some-key")
    client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "Hi"}])
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import httpx2
import msgspec
import uvicorn
import uvloop
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from turnledger.chat import Chat
from turnledger.engine.clock import SystemClock
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Tables
from turnledger.ledger import Ledger
from turnledger.model.conversation import Ticket
from turnledger.model.ids import BranchId
from turnledger.runners.demo import DemoModel
from turnledger.runners.upstream.upstream import Retries, Timeouts, Upstream
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import DEMO, Settings
from turnledger.server.listen.protocol import bounded_http
from turnledger.server.listen.socket import bind, url_of
from turnledger.server.models.models import ContextWindow, Models, ResolvedModel
from turnledger.stores.url import open_store
from turnledger.testing.gates import Gate, GatedStore
from turnledger.testing.upstream import ScriptedUpstream, Step

T = TypeVar("T")
Raw: TypeAlias = AbstractContextManager[httpx2.Response]

PATIENCE = 20.0
"""Seconds after which a wait fails."""
MODEL = "scripted"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients: loading all certificates takes longer than most tests."""


class MovableClock(SystemClock):
    """The system time plus an offset."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def boot_time(self) -> float:
        return super().boot_time() + self.ahead_ms / 1000


class LiveServer:
    """A running server: tests reach it over HTTP, and its loop with `do`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: ScriptedUpstream) -> None:
        self._loop = loop
        self._closing = ExitStack()
        self.upstream = upstream
        self.clock = MovableClock()
        self.url: str
        self.store: GatedStore
        self.ledger: Ledger
        self.app: App
        self.server: uvicorn.Server

    def client(self, conversation: str | None = None, **headers: str) -> OpenAI:
        """Create the official client, without retries. Headers are named with underscores."""
        client = OpenAI(http_client=DefaultHttpxClient(verify=NO_TLS), **self._options(conversation, headers))
        self._closing.callback(client.close)
        return client

    def async_client(self, conversation: str | None = None, **headers: str) -> AsyncOpenAI:
        """Create the asynchronous official client; use it with `async with`."""
        http_client = DefaultAsyncHttpxClient(verify=NO_TLS)
        return AsyncOpenAI(http_client=http_client, **self._options(conversation, headers))

    def _options(self, conversation: str | None, headers: Mapping[str, str]) -> dict[str, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if conversation is not None:
            named["X-Conversation-Id"] = conversation
        return {
            "base_url": f"{self.url}/v1",
            "api_key": "of no use here",
            "max_retries": 0,
            "timeout": PATIENCE,
            "default_headers": named,
        }

    @cached_property
    def http(self) -> httpx2.Client:
        """Create a plain HTTP client that leaves no connections open."""
        limits = httpx2.Limits(max_keepalive_connections=0)
        client = httpx2.Client(
            base_url=self.url, timeout=PATIENCE, trust_env=False, limits=limits, verify=NO_TLS
        )
        self._closing.callback(client.close)
        return client

    def chat_json(self, conversation_key: str) -> dict[str, Any]:
        """Return the conversation of a key from `/api/chats/{id}`."""
        shown: dict[str, Any] = msgspec.json.decode(self._shown(conversation_key))
        return shown

    def turns(self, conversation_key: str) -> bytes:
        """Return its turns as JSON bytes."""
        return bytes(msgspec.json.decode(self._shown(conversation_key), type=dict[str, msgspec.Raw])["turns"])

    def messages(self, conversation_key: str) -> list[tuple[str, str]]:
        """Return role and text of the messages in its turns."""
        items = [
            item
            for turn in self.chat_json(conversation_key)["turns"]
            for item in (*turn["input"], *turn["output"])
        ]
        return [
            (item["role"], "".join(part.get("text", "") for part in item["content"]))
            for item in items
            if item["type"] == "message"
        ]

    def attempts(self, conversation_key: str) -> list[str]:
        """Return the states of attempts outside the history, newest first."""
        return [attempt["state"] for attempt in self.chat_json(conversation_key)["attempts"]]

    def _shown(self, conversation_key: str) -> bytes:
        answer = self.http.get(f"/api/chats/{self.id_of(conversation_key)}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def raw_completion(self, body: dict[str, Any], conversation: str | None = None, **headers: str) -> Raw:
        """Send a chat completion; a context manager around the raw response."""
        named = self._options(conversation, headers)["default_headers"]
        return self.http.stream("POST", "/v1/chat/completions", json={"model": MODEL, **body}, headers=named)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def wait_arrived(self, gate: Gate, count: int = 1) -> None:
        self.do(gate.arrived(count))

    def release(self, gate: Gate) -> None:

        async def release() -> None:
            gate.release()

        self.do(release())

    def tend(self) -> None:
        """Run the periodic maintenance once."""
        self.do(self.ledger._recovery.run_round())

    def chat(self, conversation_key: str) -> Chat:
        return self.do(self.ledger.conversation(conversation_key=conversation_key, create=False))

    def id_of(self, conversation_key: str) -> str:
        return self.chat(conversation_key).id

    def wait_queued(self, conversation_key: str, count: int = 1) -> None:
        """Wait until exactly this many requests wait for the running turn."""
        chat = self.chat(conversation_key)

        async def look() -> None:
            branch = (await chat.info()).branch
            while len(await self.store.read(_tickets, branch, chat.owner)) != count:
                await asyncio.sleep(0)

        self.do(look())

    def wait_attached(self) -> None:
        """Wait until a request is attached to the turn of another, or reads its events."""
        self.wait_until(lambda: self.app.service.audience.turns)

    def wait_until(self, is_so: Callable[[], object]) -> None:
        """Wait until a condition holds, checked after each step of the server's loop."""

        async def look() -> None:
            while not is_so():
                await asyncio.sleep(0)

        self.do(look())

    def wait_alone(self) -> None:
        """Wait until the server has noticed that all clients left."""
        self.wait_until(lambda: not self.server.server_state.connections)

    def close_clients(self) -> None:
        self._closing.close()


async def _tickets(tables: Tables, branch: BranchId) -> list[Ticket]:
    return await tables.tickets(branch)


@contextmanager
def run_server(
    *scripts: Sequence[Step],
    otherwise: Sequence[Step] | None = None,
    store: str = "memory:",
    timeouts: Timeouts | None = None,
    settings: Settings | None = None,
    limits: Limits | None = None,
    has_upstream: bool = True,
    api_key: str | None = None,
    retries: Retries = Retries(limit=0),  # noqa: B008 - it is frozen
) -> Iterator[LiveServer]:
    """Run a server. The upstream receives each request once, unless there are `retries`. Without an upstream
    there is only the demo model, at its normal pace."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served", daemon=True)
    thread.start()
    served = LiveServer(loop, ScriptedUpstream(*scripts, otherwise=otherwise))
    ended = asyncio.Event()
    started = threading.Event()
    options = settings or Settings(port=0, grace=0.0)
    connection = {"api_key": api_key, "timeouts": timeouts or Timeouts(), "retries": retries}
    running = asyncio.run_coroutine_threadsafe(
        _serve(served, options, store, connection if has_upstream else None, limits, started.set, ended), loop
    )
    running.add_done_callback(lambda _: started.set())
    try:
        assert started.wait(PATIENCE)
        if running.done():
            running.result()
        yield served
    finally:
        served.close_clients()
        loop.call_soon_threadsafe(ended.set)
        running.result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


async def _serve(
    served: LiveServer,
    settings: Settings,
    store: str,
    connection: dict[str, Any] | None,
    limits: Limits | None,
    started: Callable[[], None],
    ended: asyncio.Event,
) -> None:
    async with served.upstream:
        rest = None if connection is None else Upstream(served.upstream.url, **connection)
        hurried = DemoModel(pace=0, slow_pace=0, patience=0)
        demo = ResolvedModel(DemoModel() if rest is None else hurried, DEMO)
        window = ContextWindow.of(settings)
        models = Models(
            {DEMO: demo},
            rest,
            length_field=settings.length_field,
            window=window,
            credential_header=settings.credential_header,
        )
        served.store = GatedStore(await open_store(store))
        served.ledger = await Ledger.over(served.store, clock=served.clock, limits=limits)
        served.app = make_app(served.ledger, models, settings)
        with bind(settings) as listening:
            served.url = url_of(listening)
            await _answer_requests(served, listening, started, ended)
        await models.close()
        await served.ledger.close()


async def _answer_requests(
    served: LiveServer, listening: Any, started: Callable[[], None], ended: asyncio.Event
) -> None:
    """Run uvicorn without signal handling, whose polling delays the end by a tenth of a second."""
    config = uvicorn.Config(
        served.app,
        loop="none",
        http=bounded_http(served.app.service.settings.limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
    )
    config.load()
    served.server = server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    served.app.background.start()
    started()
    await ended.wait()
    # Requests at a gate that is never released would delay the end of the test.
    await served.app.drain(0.0)
    for listener in server.servers:
        listener.close()
    state = server.server_state
    for connection in list(state.connections):
        connection.transport.abort()
    while state.connections or state.tasks:
        await asyncio.sleep(0)
