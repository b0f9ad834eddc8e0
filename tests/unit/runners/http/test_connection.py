"""A connection sends requests, reads every form of response, and is reused only after a clean end."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.runners.http.connections import (
    REQUEST,
    body_of,
    connection_of,
    eventually,
    exchange,
    pool_to,
    send_request,
)
from tests.unit.runners.http.raw_server import (
    OK,
    ServerConnection,
    answer_once,
    answer_with,
    fall_silent_after,
    run_raw_server,
)
from turnledger.errors import MalformedAnswer, ModelTimeout, ModelUnavailable
from turnledger.runners.http import connection as module
from turnledger.runners.http.connection import NEVER, PhaseTimeouts
from turnledger.runners.http.dial import address_of
from turnledger.runners.http.pool import get, head_of
from turnledger.runners.upstream.failures import NoResponse, UpstreamFailure

ADDRESS = address_of("https://api.example.com/v1?a=b")


def test_request_head_has_target_host_authorization_and_encoding() -> None:
    lines = head_of("POST", ADDRESS, "/models", "sk-1").decode().split("\r\n")
    assert lines[0] == "POST /v1/models?a=b HTTP/1.1"
    assert lines[1] == "Host: api.example.com"
    assert "Authorization: Bearer sk-1" in lines
    assert "Accept-Encoding: gzip" in lines
    assert lines[-1] == ""


@pytest.mark.parametrize("api_key", [None, ""])
def test_request_head_without_an_api_key_has_no_authorization(api_key: str | None) -> None:
    assert b"Authorization" not in head_of("GET", ADDRESS, "/models", api_key)


async def got(port: int, limit: int = 100, seconds: float = 60.0) -> tuple[int, bytes]:
    answered = await get(f"http://127.0.0.1:{port}/v1", "/models", None, seconds=seconds, limit=limit)
    return answered.status, answered.body


@pytest.mark.parametrize("status", [200, 404])
async def test_get_returns_status_and_body_of_any_answer(status: int) -> None:
    async with run_raw_server(answer_with(OK.replace(b"200", b"%d" % status))) as port:
        assert await got(port) == (status, b"ok")


async def test_get_of_a_body_over_the_limit_returns_its_beginning() -> None:
    async with run_raw_server(answer_once(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n12345")) as port:
        assert await got(port, limit=3) == (200, b"12345")


async def test_get_raises_different_errors_for_a_cut_answer_and_for_none() -> None:
    async with run_raw_server(answer_once(OK[:-1])) as port:
        with pytest.raises(ModelUnavailable):
            await got(port)
    async with run_raw_server(answer_once()) as port:
        with pytest.raises(NoResponse):
            await got(port)


async def test_get_without_an_answer_times_out() -> None:
    async def behave(connection: ServerConnection) -> None:
        await asyncio.Event().wait()

    async with run_raw_server(behave) as port:
        with pytest.raises(TimeoutError):
            await got(port, seconds=0.01)


def post_of(size: int) -> bytes:
    return b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size


LONG_POST = post_of(50_000_000)
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
in_both_ways = pytest.mark.parametrize("is_streamed", [True, False])


@in_both_ways
@pytest.mark.parametrize(
    "response",
    [
        HEAD + b"Content-Length: 5\r\n\r\nHello",
        HEAD + b"content-length:5\r\n\r\nHello",
        CHUNKED + b"5\r\nHello\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nHe\r\n3;name=value\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        CHUNKED + b"5  \r\nHello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nHello",
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 5\r\n\r\nHello",
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\nLink: </a>\r\n\r\n" + CHUNKED
        + b"5\r\nHello\r\n0\r\n\r\n",
        b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nHello",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_body_in_every_framing_and_split_is_read_whole_and_the_connection_reused(
    response: bytes, size: int, is_streamed: bool
) -> None:
    pieces = [response[at : at + size] for at in range(0, len(response), size)]
    async with pool_to(answer_with(*pieces)) as pool:
        for _ in range(2):
            assert await body_of(pool, is_streamed=is_streamed) == b"Hello"
        assert (await connection_of(pool)).may_be_stale is False


@in_both_ways
@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.0 200 OK\r\n", HEAD + b"Connection: close\r\n"])
async def test_body_without_a_length_ends_with_the_connection(head: bytes, is_streamed: bool) -> None:
    async with pool_to(answer_once(head + b"\r\nHel", b"lo")) as pool:
        response = await exchange(pool, is_streamed=is_streamed)
        assert await response.body(100) == b"Hello"
        assert not response.has_marked_end
        assert pool.take() is None


@in_both_ways
@pytest.mark.parametrize(
    "response",
    [
        HEAD,
        HEAD + b"Content-Length: 5\r\n\r\n",
        HEAD + b"Content-Length: 5\r\n\r\nHell",
        CHUNKED,
        CHUNKED + b"5\r\nHel",
        CHUNKED + b"5\r\nHello",
        CHUNKED + b"5\r\nHello\r\n",
        CHUNKED + b"5\r\nHello\r\n0\r\n",
        b"H",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_response_cut_after_its_first_byte_raises_and_may_not_be_retried(
    response: bytes, is_streamed: bool
) -> None:
    async with pool_to(answer_once(response)) as pool:
        with pytest.raises((UpstreamFailure, ModelUnavailable)) as caught:
            await body_of(pool, is_streamed=is_streamed)
        error = caught.value
        assert not isinstance(error, NoResponse)
        assert not getattr(error, "may_retry", False)
        assert "broke before its answer was complete" in str(error)
        assert pool.take() is None


@in_both_ways
async def test_response_cut_before_its_first_byte_may_be_retried(is_streamed: bool) -> None:
    async with pool_to(answer_once()) as pool:
        with pytest.raises(NoResponse) as caught:
            await body_of(pool, is_streamed=is_streamed)
        assert caught.value.may_retry


async def test_reset_in_a_body_without_a_length_raises() -> None:
    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(HEAD + b"\r\nHel")
        connection.reset()

    async with pool_to(behave) as pool:
        response = await exchange(pool)
        with pytest.raises(ModelUnavailable):
            await response.body(100)


@in_both_ways
@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        HEAD + b"no colon\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Content-Length: -3\r\n\r\n",
        CHUNKED + b"zz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_response_that_is_not_http_is_malformed(response: bytes, is_streamed: bool) -> None:
    async with pool_to(answer_with(response)) as pool:
        with pytest.raises((UpstreamFailure, MalformedAnswer)) as caught:
            await body_of(pool, is_streamed=is_streamed)
        assert "not HTTP" in str(caught.value)
        assert pool.take() is None


async def test_response_malformed_midway_yields_its_beginning_before_it_raises() -> None:
    async with pool_to(answer_with(CHUNKED + b"5\r\nHello\r\nzz\r\n")) as pool:
        response = await exchange(pool)
        assert response.take() == b"Hello"
        with pytest.raises(MalformedAnswer):
            response.take()


@pytest.mark.parametrize(
    "endless",
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (CHUNKED + b"0\r\n", b"X-More: 1\r\n"),
        (CHUNKED + b"0\r\nX-Long: ", b"x" * 1000),
    ],
    ids=["headers", "a header", "informational responses", "trailers", "a trailer"],
)
async def test_response_with_endless_headers_or_trailers_is_malformed(
    endless: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_BYTES", 5_000)
    sent = 0

    async def behave(connection: ServerConnection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(endless[0])
        while True:
            await connection.send(endless[1])
            sent += len(endless[1])

    async with pool_to(behave) as pool:
        with pytest.raises((UpstreamFailure, MalformedAnswer)) as caught:
            await body_of(pool)
        assert "not HTTP" in str(caught.value)


async def test_interim_headers_and_trailers_are_not_response_headers() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: gzip\r\n\r\n"
    sent = early + CHUNKED + b"2\r\nHi\r\n0\r\nContent-Type: text/html\r\n\r\n"
    async with pool_to(answer_with(sent)) as pool:
        response = await exchange(pool)
        assert await response.body(100) == b"Hi"
        assert response.headers == {b"transfer-encoding": b"chunked"}


@pytest.mark.parametrize("behind", [b"x", OK, b"HTTP/1.1 "])
@pytest.mark.parametrize("at_once", [True, False])
async def test_bytes_behind_a_response_close_the_connection(behind: bytes, at_once: bool) -> None:
    pieces = [OK + behind] if at_once else [OK, behind]
    async with pool_to(fall_silent_after(*pieces)) as pool:
        connection = await connection_of(pool)
        response = send_request(connection)
        await response.wait_for_head()
        assert await response.body(100) == b"ok"
        await eventually(lambda: connection.is_lost)
        assert pool.take() is None


@pytest.mark.parametrize("status", [b"204", b"304"])
async def test_body_behind_a_bodiless_status_does_not_answer_the_next_request(status: bytes) -> None:
    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        if connection.number == 0:
            await connection.send(b"HTTP/1.1 %s No\r\nContent-Length: %d\r\n\r\n" % (status, len(OK)))
            await connection.request()
            await connection.send(OK.replace(b"ok", b"no"))
        await connection.send(OK)

    async with pool_to(behave) as pool:
        assert await body_of(pool) == b""
        assert await body_of(pool) == b"ok"


@pytest.mark.parametrize(
    "response", [OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), OK.replace(b"/1.1", b"/1.0")]
)
async def test_connection_that_the_server_wants_to_close_is_not_reused(response: bytes) -> None:
    async with pool_to(answer_with(response)) as pool:
        assert await body_of(pool) == b"ok"
        assert pool.take() is None


@pytest.mark.parametrize("limits", [PhaseTimeouts(0.01, None, None), PhaseTimeouts(60.0, None, 0.01)])
async def test_response_silent_before_its_first_byte_times_out(limits: PhaseTimeouts) -> None:
    async with pool_to(fall_silent_after(CHUNKED)) as pool:
        with pytest.raises(ModelTimeout):
            await body_of(pool, limits=limits)
        assert pool.take() is None


async def test_response_silent_between_pieces_times_out() -> None:
    async with pool_to(fall_silent_after(CHUNKED + b"2\r\nHi\r\n")) as pool:
        response = await exchange(pool, limits=PhaseTimeouts(60.0, 0.01, None))
        assert response.take() == b"Hi"
        await response.arrival()
        with pytest.raises(ModelTimeout):
            response.take()


async def trickle(connection: ServerConnection) -> None:
    await connection.request()
    await connection.send(CHUNKED)
    while True:
        await connection.send(b"1\r\nx\r\n")


async def test_unstreamed_response_that_trickles_times_out_at_the_first_byte_limit() -> None:
    async with pool_to(trickle) as pool:
        with pytest.raises(ModelTimeout):
            await body_of(pool, 10**9, limits=PhaseTimeouts(0.05, None, None), is_streamed=False, room=10**9)


async def test_streamed_response_that_trickles_times_out_at_the_total_limit() -> None:
    async with pool_to(trickle) as pool:
        response = await exchange(pool, limits=PhaseTimeouts(60.0, 60.0, 0.05))
        with pytest.raises(ModelTimeout):
            while True:
                if response.take() is None:
                    await response.arrival()


async def test_slow_reader_pauses_the_server_and_its_deadline() -> None:
    sent = 0

    async def behave(connection: ServerConnection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(HEAD + b"Content-Length: 50000000\r\n\r\n")
        for _ in range(50):
            await connection.send(b"x" * 1_000_000)
            sent += 1_000_000
        await connection.is_closed()

    async with pool_to(behave) as pool:
        connection = await connection_of(pool)
        response = send_request(connection, room=1000, limits=PhaseTimeouts(60.0, 60.0, None))
        await response.wait_for_head()
        await eventually(lambda: connection.deadline == NEVER)  # while not reading
        for _ in range(500):
            await asyncio.sleep(0)
        assert sent < 50_000_000
        assert response.waits < 1_000_000
        got = 0
        while not response.is_whole or response.waits:
            piece = response.take()
            if piece is None:
                await response.arrival()
            else:
                got += len(piece)
                assert response.is_whole or connection.deadline != NEVER
        assert got == 50_000_000
        await asyncio.sleep(0)  # it is free a step later
        assert pool.take() is connection


async def test_deadline_runs_again_once_a_slow_reader_has_caught_up() -> None:
    async with pool_to(fall_silent_after(CHUNKED + b"4\r\nlong\r\n")) as pool:
        response = await exchange(pool, room=3, limits=PhaseTimeouts(60.0, 0.01, None))
        await eventually(lambda: pool._deadlines._due_at == NEVER)
        assert response.take() == b"long"
        await response.arrival()
        with pytest.raises(ModelTimeout):
            response.take()


async def test_long_request_is_sent_in_slices_as_the_server_reads() -> None:
    request = post_of(20_000_000)
    received: list[int] = []

    async def behave(connection: ServerConnection) -> None:
        received.append(len(await connection.request()))
        await connection.send(OK)

    async with pool_to(behave) as pool:
        connection = await connection_of(pool)
        response = send_request(connection, request)
        assert connection._transport.get_write_buffer_size() == 0
        await connection.send(request)
        assert connection._transport.get_write_buffer_size() <= module.SLICE
        await response.wait_for_head()
        assert await response.body(100) == b"ok"
        assert received == [len(request)]


async def test_answer_before_the_request_is_sent_is_read_and_the_connection_closed() -> None:
    async def behave(connection: ServerConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(OK.replace(b"200 OK", b"413 Too Large"))
        await asyncio.Event().wait()

    async with pool_to(behave) as pool:
        connection = await connection_of(pool)
        response = send_request(connection, LONG_POST)
        await connection.send(LONG_POST)
        await response.wait_for_head()
        assert (response.status, await response.body(100)) == (413, b"ok")
        assert pool.take() is None
        assert connection.is_closing


@in_both_ways
@pytest.mark.parametrize("early", [OK[:-2], OK[:-1]])
async def test_answer_begun_before_the_request_is_sent_is_read_after_the_rest_is_sent(
    early: bytes, is_streamed: bool
) -> None:
    request = post_of(5_000_000)

    async def behave(connection: ServerConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(early)
        await connection.reader.readexactly(5_000_000)
        await connection.send(OK[len(early) :])
        await answer_with(OK)(connection)

    async with pool_to(behave) as pool:
        connection = await connection_of(pool)
        response = send_request(connection, request, is_streamed=is_streamed)
        await connection.send(request)
        await response.wait_for_head()
        assert await response.body(100) == b"ok"
        assert pool.take() is connection


async def test_long_answer_before_the_request_is_sent_is_read_whole() -> None:
    async def behave(connection: ServerConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(HEAD + b"Content-Length: 20000000\r\n\r\n", b"x" * 20_000_000)
        assert await connection.is_closed()

    async with pool_to(behave) as pool:
        connection = await connection_of(pool)
        response = send_request(connection, LONG_POST)
        await connection.send(LONG_POST)
        got = 0
        while not response.is_whole or response.waits:
            piece = response.take()
            if piece is None:
                await response.arrival()
            else:
                got += len(piece)
        assert got == 20_000_000
        assert connection.is_closing


async def test_server_that_closes_while_the_request_is_sent_raises_a_retryable_error() -> None:
    async def behave(connection: ServerConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")

    async with pool_to(behave) as pool:
        connection = await connection_of(pool)
        response = send_request(connection, LONG_POST)
        with pytest.raises(NoResponse):
            await connection.send(LONG_POST)
            await response.wait_for_head()


@pytest.mark.parametrize("at", ["head", "body", "sending"])
async def test_cancelled_request_closes_its_connection_and_the_next_one_succeeds(at: str) -> None:
    async def behave(connection: ServerConnection) -> None:
        if connection.number == 0:
            await connection.reader.readuntil(b"\r\n\r\n")
            if at == "body":
                await connection.send(CHUNKED + b"2\r\nHi\r\n")
            assert await connection.is_closed()
        else:
            await answer_with(OK)(connection)

    async with pool_to(behave) as pool:
        connection = await connection_of(pool)
        response = send_request(connection, LONG_POST if at == "sending" else REQUEST)

        async def read() -> None:
            try:
                await connection.send(LONG_POST)
                await response.wait_for_head()
                await response.body(100)
            finally:
                response.release()

        reading = asyncio.create_task(read())
        await eventually(lambda: response._waiting is not None and (at != "body" or response.waits > 0))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await eventually(lambda: connection.is_lost)
        assert pool.take() is None
        assert await body_of(pool) == b"ok"


async def test_connection_idle_beyond_the_limit_may_be_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool_to(answer_with(OK)) as pool:
        fresh = await connection_of(pool)
        assert not fresh.may_be_stale
        response = send_request(fresh)
        await response.wait_for_head()
        monkeypatch.setattr(module, "STALE_AFTER", 0.0)
        assert fresh.may_be_stale
