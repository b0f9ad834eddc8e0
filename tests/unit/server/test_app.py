"""The application: routing, errors, logging, shutdown, and no reference cycles."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from blockbuster import blockbuster_ctx
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.unit.model.shapes import repeatable
from tests.unit.server.asgi import (
    HOST,
    JSON,
    Reply,
    StreamingEndpoint,
    breaks,
    echo,
    endpoint,
    fetch,
    is_busy,
    run_app,
)
from turnledger import Limits
from turnledger.errors import QueueFull
from turnledger.runners import demo
from turnledger.server.app import App
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.listen import serve
from turnledger.server.listen.serve import Server, open_app
from turnledger.server.listen.socket import bind


@asynccontextmanager
async def streaming(
    settings: Settings | None = None,
) -> AsyncIterator[tuple[App, StreamingEndpoint, asyncio.Task[Reply]]]:
    """Run an application with an open request to a stream."""
    stream = StreamingEndpoint()
    async with run_app(settings, endpoint("/stream", stream)) as app:
        open_request = asyncio.create_task(fetch(app, "/stream"))
        await stream.has_begun.wait()
        yield app, stream, open_request


async def test_unknown_path_is_answered_404() -> None:
    async with run_app() as app:
        reply = await fetch(app, "/nothing")
        assert (reply.status, reply.code) == (404, "unknown_url")
        for path in ("/healthz/", "//healthz", "/%2e%2e/healthz", "", "/\x00\x1b[2J"):
            assert (await fetch(app, path)).status == 404


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/api/chats/ada", "GET", 400, "invalid_id"),
        ("/api/chats/ada/stop", "POST", 400, "invalid_id"),
        ("/api/chats/ada/branches", "GET", 400, "invalid_id"),
        ("/api/chats/user-42/support/stop", "POST", 404, "unknown_url"),
    ],
)
async def test_chat_path_with_a_conversation_key_is_refused_with_the_remedy(
    path: str, method: str, status: int, code: str
) -> None:
    async with run_app() as app:
        reply = await fetch(app, path, method=method)
    assert (reply.status, reply.code) == (status, code)
    message = reply.json["error"]["message"]
    assert "GET /api/chats?conversation_key=…" in message
    assert len(message.split()) < 20


async def test_invalid_id_in_the_body_of_a_chat_request_is_refused_without_a_remedy_for_paths() -> None:
    async with run_app() as app:
        post = partial(fetch, app, method="POST", headers=(HOST, JSON))
        chat = (await post("/api/chats", parts=[b"{}"])).json["id"]
        reply = await post(f"/api/chats/{chat}/fork", parts=[b'{"turn": "x"}'])
        reset = await post("/api/chats/reset", parts=[b'{"conversation_key": "k", "replaces": "x"}'])
    assert reply.json["error"]["message"] == "'x' is not an id that Turnledger issued (turn_…)."
    assert reset.json["error"]["message"] == "'x' is not an id that Turnledger issued (conv_…)."


async def test_unsupported_method_is_answered_405_with_the_allowed_ones() -> None:
    async with run_app(None, endpoint("/healthz", breaks, "DELETE")) as app:
        reply = await fetch(app, method="POST")
        assert (reply.status, reply.code) == (405, "method_not_allowed")
        assert reply.header(b"allow") == b"DELETE, GET, HEAD"


async def test_path_parameters_are_passed_to_the_endpoint() -> None:
    async def show(request: Request) -> Response:
        return JSONResponse(request.path_params)

    async with run_app(None, endpoint("/test/{turn_id}/events", show)) as app:
        assert (await fetch(app, "/test/turn_1/events")).json == {"turn_id": "turn_1"}
        assert (await fetch(app, "/test/turn_1/events", method="POST")).status == 405
        assert (await fetch(app, "/test/a/b/events")).status == 404


async def test_endpoint_receives_the_caller_and_the_request_id() -> None:
    async def show(request: Request) -> Response:
        return JSONResponse([request.state.principal.owner, request.state.request_id])

    async with run_app(None, endpoint("/who", show)) as app:
        reply = await fetch(app, "/who", headers=(HOST, (b"x-request-id", b"mine")))
        assert reply.json == ["local", "mine"]


async def test_unexpected_exception_is_answered_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    async with run_app(None, endpoint("/breaks", breaks), endpoint("/busy", is_busy)) as app:
        reply = await fetch(app, "/breaks")
        assert (reply.status, reply.code) == (500, "internal_error")
        assert b"somebody" not in reply.body
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert (await fetch(app, "/busy")).code == "error"


async def test_exception_in_the_middle_of_an_answer_cuts_it_off(caplog: pytest.LogCaptureFixture) -> None:
    class Half:
        def __init__(self, problem: Exception) -> None:
            self.problem = problem

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise self.problem

    async with run_app(
        None, endpoint("/half", Half(ValueError())), endpoint("/busy", Half(QueueFull()))
    ) as app:
        for path, code in (("/half", "internal_error"), ("/busy", "answer_cut")):
            caplog.clear()
            reply = await fetch(app, path)
            assert (reply.status, reply.body, reply.is_whole) == (200, b"", False)
            assert [record.getMessage() for record in caplog.records] == [code]


async def test_cancelled_request_of_a_running_server_propagates_cancellation() -> None:
    stream = StreamingEndpoint()

    async def wait(_: Request) -> Response:
        stream.has_begun.set()
        await stream.released.wait()
        raise AssertionError

    async with run_app(None, endpoint("/wait", wait)) as app:
        pending = asyncio.create_task(fetch(app, "/wait"))
        await stream.has_begun.wait()
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending


async def test_requests_above_the_limit_are_refused_except_health_checks() -> None:
    async with streaming(Settings(limits=ServerLimits(requests=1))) as (app, stream, first):
        reply = await fetch(app, "/stream")
        assert (reply.status, reply.code, reply.header(b"retry-after")) == (429, "server_busy", b"2")
        assert (await fetch(app)).status == 200
        stream.released.set()
        assert (await first).body == b"hello, done"
        assert (await fetch(app, "/stream")).status == 200


async def test_drain_lets_open_requests_complete_and_refuses_new_ones() -> None:
    async with streaming() as (app, stream, open_request):
        draining = asyncio.create_task(app.drain(3600))
        await app.service.shutting_down.wait()
        late = await fetch(app, "/stream")
        assert (late.status, late.code, late.header(b"retry-after")) == (503, "shutting_down", b"1")
        assert (await fetch(app)).status == 200
        assert (await fetch(app, "/readyz")).json["status"] == "shutting_down"
        assert not draining.done()
        stream.released.set()
        assert await draining
        assert (await open_request).body == b"hello, done"


async def test_retiring_server_closes_each_connection_after_its_next_answer() -> None:
    async with run_app() as app:
        assert (await fetch(app)).header(b"connection") is None
        app.close_connections()
        parted = await fetch(app)
        assert (parted.status, parted.header(b"connection")) == (200, b"close")
        await app.drain(0)
        late = await fetch(app, "/v1/models")
        assert (late.status, late.header(b"connection")) == (503, b"close")


async def test_drain_cancels_open_requests_after_the_grace_period() -> None:
    async with streaming() as (app, _, open_request):
        assert await app.drain(0)
        assert (await open_request).body == b"hello, cancelled"


async def test_drain_cancels_open_requests_immediately_when_hurried() -> None:
    async with streaming() as (app, _, open_request):
        draining = asyncio.create_task(app.drain(3600))
        await app.service.shutting_down.wait()
        app.cancel_requests()
        assert await draining
        assert (await open_request).body == b"hello, cancelled"


async def test_unanswered_request_cancelled_by_shutdown_is_answered_503() -> None:
    began = asyncio.Event()

    async def wait(_: Request) -> Response:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with run_app(None, endpoint("/wait", wait)) as app:
        pending = asyncio.create_task(fetch(app, "/wait"))
        await began.wait()
        assert await app.drain(0)
        reply = await pending
        assert (reply.status, reply.code) == (503, "shutting_down")


async def test_drain_does_not_wait_forever_for_a_request_that_ignores_cancellation() -> None:
    stream, released = StreamingEndpoint(), asyncio.Event()
    cancelled: list[int] = []

    async def stubborn(_: Request) -> Response:
        stream.has_begun.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                cancelled.append(1)
        return JSONResponse({})

    async with run_app(None, endpoint("/stubborn", stubborn)) as app:
        pending = asyncio.create_task(fetch(app, "/stubborn"))
        await stream.has_begun.wait()
        assert not await app.drain(0, cleanup_time=0)
        app.cancel_requests()
        for _ in range(3):
            await asyncio.sleep(0)
        assert cancelled == [1]  # what it does to end well is not cut off in its turn
        released.set()
        await pending


async def test_requests_do_not_block_the_event_loop() -> None:
    async with run_app() as app:
        await fetch(app, "/readyz")  # what is imported on first use is
        with blockbuster_ctx():
            for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/nothing"):
                assert (await fetch(app, path)).status in {200, 404}


async def test_drain_of_an_idle_server_ends_immediately() -> None:
    async with run_app() as app:
        assert await app.drain(3600)


async def live(app: App, *kinds: str) -> list[str]:
    sent: list[str] = []
    messages = iter(kinds)

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    return sent


async def test_application_supports_the_asgi_lifespan() -> None:
    async with run_app() as app:
        sent = await live(app, "lifespan.startup", "lifespan.shutdown")
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert app.service.shutting_down.is_set()


async def test_websocket_connection_is_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with run_app() as app:
        await app({"type": "websocket"}, None, send)  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["websocket.close"]


LOOKED_AT = [
    b"host",
    b"origin",
    b"sec-fetch-site",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"x-request-id",
    b"access-control-request-method",
    b"access-control-request-headers",
    b"via",
]


@repeatable
@given(
    st.sampled_from(["GET", "POST", "OPTIONS", "HEAD", "DELETE", "BREW"]),
    st.sampled_from(["/echo", "/healthz", "/readyz", "/api/turns/x"]) | st.text(),
    st.lists(
        st.tuples(st.sampled_from(LOOKED_AT), st.binary() | st.sampled_from([b"1", b"application/json"]))
    ),
    st.lists(st.binary(), min_size=1),
)
def test_arbitrary_request_is_answered_completely_and_without_a_server_error(
    method: str, path: str, headers: list[tuple[bytes, bytes]], parts: list[bytes]
) -> None:
    async def sent() -> Reply:
        settings = Settings(origins=("http://page",))
        async with run_app(settings, echo(settings)) as app:
            given_host = [] if any(name == b"host" for name, _ in headers) else [HOST]
            return await fetch(app, path, method=method, headers=[*given_host, *headers], parts=parts)

    reply = asyncio.run(sent())
    assert 200 <= reply.status < 500
    assert reply.is_whole
    for name, value in reply.headers:
        assert not set(name + value) & set(b"\r\n\0")


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
    "a turn with a failing model": completion("/fail after 2"),
    "a stream with a failing model": completion("/fail after 2", stream=True),
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
async def listening(store: str) -> AsyncIterator[int]:
    settings = Settings(port=0, store=store, log_level="error")
    with bind(settings) as listening:
        async with open_app(settings, {}, listening) as app:
            is_up = asyncio.Event()
            server = Server(app, is_up.set)
            answering = asyncio.create_task(server.serve([listening]))
            await is_up.wait()
            yield listening.getsockname()[1]
            server.end()
            await answering


async def send_and_leave(port: int, request: bytes, at_rest: set[asyncio.Task[object]]) -> None:
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


async def test_requests_of_every_kind_leave_no_reference_cycles(
    tmp_path: Path, collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "DemoModel", partial(demo.DemoModel, pace=0))
    monkeypatch.setattr(serve, "engine_limits", lambda _: Limits(flush_every=0.001))
    async with listening(f"sqlite:///{tmp_path}/chats.db") as port:
        at_rest = asyncio.all_tasks()
        left = {}
        for what, request in REQUESTS.items():
            await send_and_leave(port, request, at_rest)  # what is made once is made now
            gc.collect()
            gc.garbage.clear()
            for _ in range(2):
                await send_and_leave(port, request, at_rest)
            gc.collect()
            left[what] = [repr(found)[:200] for found in gc.garbage if is_ours(found)]
            gc.garbage.clear()
        assert left == {what: [] for what in REQUESTS}
