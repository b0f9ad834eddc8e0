"""The application: what it answers, what it logs, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.unit.model.shapes import repeatable
from tests.unit.server.asgi import HOST, Reply, Streaming, ask, breaks, echo, endpoint, is_busy, serving
from turnledger.errors import QueueFull
from turnledger.server.app import App
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.openapi.endpoint import Endpoint


def streaming(at: Streaming) -> Endpoint:
    return endpoint("/stream", at)


async def test_what_is_not_there_is_not_found() -> None:
    async with serving() as app:
        reply = await ask(app, "/nothing")
        assert (reply.status, reply.code) == (404, "unknown_url")
        for path in ("/healthz/", "//healthz", "/%2e%2e/healthz", "", "/\x00\x1b[2J"):
            assert (await ask(app, path)).status == 404


async def test_a_method_that_a_path_does_not_take_is_told_which_it_does() -> None:
    async with serving(None, endpoint("/healthz", breaks, "DELETE")) as app:
        reply = await ask(app, method="POST")
        assert (reply.status, reply.code) == (405, "method_not_allowed")
        assert reply.header(b"allow") == b"DELETE, GET, HEAD"


async def test_a_path_may_have_parameters() -> None:
    async def show(request: Request) -> Response:
        return JSONResponse(request.path_params)

    async with serving(None, endpoint("/test/{turn_id}/events", show)) as app:
        assert (await ask(app, "/test/turn_1/events")).json == {"turn_id": "turn_1"}
        assert (await ask(app, "/test/turn_1/events", method="POST")).status == 405
        assert (await ask(app, "/test/a/b/events")).status == 404


async def test_endpoints_are_told_who_asks() -> None:
    async def show(request: Request) -> Response:
        return JSONResponse([request.state.principal.owner, request.state.request_id])

    async with serving(None, endpoint("/who", show)) as app:
        reply = await ask(app, "/who", headers=(HOST, (b"x-request-id", b"mine")))
        assert reply.json == ["local", "mine"]


async def test_an_exception_is_a_500_that_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(None, endpoint("/breaks", breaks), endpoint("/busy", is_busy)) as app:
        reply = await ask(app, "/breaks")
        assert (reply.status, reply.code) == (500, "internal_error")
        assert b"somebody" not in reply.body
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert (await ask(app, "/busy")).code == "error"


async def test_an_exception_in_the_middle_of_an_answer_cuts_it(caplog: pytest.LogCaptureFixture) -> None:
    class Half:
        def __init__(self, problem: Exception) -> None:
            self.problem = problem

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise self.problem

    async with serving(
        None, endpoint("/half", Half(ValueError())), endpoint("/busy", Half(QueueFull()))
    ) as app:
        for path, told in (("/half", "internal_error"), ("/busy", "answer_cut")):
            caplog.clear()
            reply = await ask(app, path)
            assert (reply.status, reply.body, reply.is_whole) == (200, b"", False)
            assert [record.getMessage() for record in caplog.records] == [told]


async def test_a_cancelled_request_of_a_server_that_goes_on_is_nobodys_business() -> None:
    stream = Streaming()

    async def wait(_: Request) -> Response:
        stream.began.set()
        await stream.released.wait()
        raise AssertionError

    async with serving(None, endpoint("/wait", wait)) as app:
        asked = asyncio.create_task(ask(app, "/wait"))
        await stream.began.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


async def test_more_requests_than_may_be_open_are_refused_and_health_is_not() -> None:
    stream = Streaming()
    settings = Settings(limits=ServerLimits(requests=1))
    async with serving(settings, streaming(stream)) as app:
        first = asyncio.create_task(ask(app, "/stream"))
        await stream.began.wait()
        reply = await ask(app, "/stream")
        assert (reply.status, reply.code, reply.header(b"retry-after")) == (429, "server_busy", b"2")
        assert (await ask(app)).status == 200
        stream.released.set()
        assert (await first).body == b"hello, done"
        assert (await ask(app, "/stream")).status == 200


async def test_open_requests_may_end_within_the_grace_and_new_ones_are_sent_away() -> None:
    stream = Streaming()
    async with serving(None, streaming(stream)) as app:
        open_request = asyncio.create_task(ask(app, "/stream"))
        await stream.began.wait()
        draining = asyncio.create_task(app.drain(3600))
        await app.service.shutting_down.wait()
        late = await ask(app, "/stream")
        assert (late.status, late.code, late.header(b"retry-after")) == (503, "shutting_down", b"1")
        assert (await ask(app)).status == 200
        assert (await ask(app, "/readyz")).json["status"] == "shutting_down"
        assert not draining.done()
        stream.released.set()
        assert await draining
        assert (await open_request).body == b"hello, done"


async def test_who_parts_has_each_connection_closed_after_its_next_answer() -> None:
    async with serving() as app:
        assert (await ask(app)).header(b"connection") is None
        app.part()
        parted = await ask(app)
        assert (parted.status, parted.header(b"connection")) == (200, b"close")
        await app.drain(0)
        late = await ask(app, "/v1/models")
        assert (late.status, late.header(b"connection")) == (503, b"close")


async def test_after_the_grace_open_requests_are_cancelled() -> None:
    stream = Streaming()
    async with serving(None, streaming(stream)) as app:
        open_request = asyncio.create_task(ask(app, "/stream"))
        await stream.began.wait()
        assert await app.drain(0)
        assert (await open_request).body == b"hello, cancelled"


async def test_told_to_hurry_nobody_waits_for_the_grace() -> None:
    stream = Streaming()
    async with serving(None, streaming(stream)) as app:
        open_request = asyncio.create_task(ask(app, "/stream"))
        await stream.began.wait()
        draining = asyncio.create_task(app.drain(3600))
        await app.service.shutting_down.wait()
        app.hurry()
        assert await draining
        assert (await open_request).body == b"hello, cancelled"


async def test_a_cancelled_request_that_was_not_answered_yet_is_told_why() -> None:
    began = asyncio.Event()

    async def wait(_: Request) -> Response:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(None, endpoint("/wait", wait)) as app:
        asked = asyncio.create_task(ask(app, "/wait"))
        await began.wait()
        assert await app.drain(0)
        reply = await asked
        assert (reply.status, reply.code) == (503, "shutting_down")


async def test_a_request_that_does_not_end_holds_nobody_up_for_ever() -> None:
    stream, released = Streaming(), asyncio.Event()
    cancelled: list[int] = []

    async def stubborn(_: Request) -> Response:
        stream.began.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                cancelled.append(1)
        return JSONResponse({})

    async with serving(None, endpoint("/stubborn", stubborn)) as app:
        asked = asyncio.create_task(ask(app, "/stubborn"))
        await stream.began.wait()
        assert not await app.drain(0, cleaning=0)
        app.hurry()
        for _ in range(3):
            await asyncio.sleep(0)
        assert cancelled == [1]  # what it does to end well is not cut off in its turn
        released.set()
        await asked


async def test_no_request_blocks_the_loop() -> None:
    async with serving() as app:
        await ask(app, "/readyz")  # what is imported on first use is
        with blockbuster_ctx():
            for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/nothing"):
                assert (await ask(app, path)).status in {200, 404}


async def test_an_idle_server_ends_at_once() -> None:
    async with serving() as app:
        assert await app.drain(3600)


async def live(app: App, *kinds: str) -> list[str]:
    told: list[str] = []
    messages = iter(kinds)

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        told.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    return told


async def test_it_follows_the_life_of_any_asgi_server() -> None:
    async with serving() as app:
        told = await live(app, "lifespan.startup", "lifespan.shutdown")
        assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert app.service.shutting_down.is_set()


async def test_there_are_no_web_sockets() -> None:
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    async with serving() as app:
        await app({"type": "websocket"}, None, send)  # type: ignore[arg-type]
    assert [message["type"] for message in told] == ["websocket.close"]


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
def test_nothing_that_is_sent_breaks_it(
    method: str, path: str, headers: list[tuple[bytes, bytes]], parts: list[bytes]
) -> None:
    async def sent() -> Reply:
        settings = Settings(origins=("http://page",))
        async with serving(settings, echo(settings)) as app:
            given_host = [] if any(name == b"host" for name, _ in headers) else [HOST]
            return await ask(app, path, method=method, headers=[*given_host, *headers], parts=parts)

    reply = asyncio.run(sent())
    assert 200 <= reply.status < 500
    assert reply.is_whole
    for name, value in reply.headers:
        assert not set(name + value) & set(b"\r\n\0")
