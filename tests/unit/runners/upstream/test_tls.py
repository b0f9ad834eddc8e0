"""Upstreams over TLS and through proxies: certificates are verified and credentials stay private."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runners.http.raw_server import Behaviour, ServerConnection, answer_with, run_raw_server
from tests.unit.runners.upstream.certificates import certified
from tests.unit.runners.upstream_requests import REQUEST, upstream
from turnledger.errors import MalformedAnswer, ModelError, ModelUnavailable
from turnledger.runners.upstream.upstream import Retries

ANSWER = b'{"choices": []}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
NEVER = Retries(limit=0)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """TLS is a matter of the loop: each test runs on both."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def trusted(authority: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test authority, which this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    return authority


async def complete(port: int) -> bytes:
    async with upstream(f"https://127.0.0.1:{port}/v1", retries=NEVER) as model:
        return await model.complete(REQUEST)


def noting_protocol(noted: list[str | None]) -> Behaviour:
    async def behave(connection: ServerConnection) -> None:
        noted.append(connection.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await answer_with(OK)(connection)

    return behave


async def test_upstream_with_a_valid_certificate_is_called_over_http_1(trusted: Path, tmp_path: Path) -> None:
    protocols: list[str | None] = []
    tls = certified(trusted, tmp_path, "IP:127.0.0.1")
    async with (
        run_raw_server(noting_protocol(protocols), tls) as port,
        upstream(f"https://127.0.0.1:{port}/v1", retries=NEVER) as model,
    ):
        assert await model.complete(REQUEST) == ANSWER
        assert await model.complete(REQUEST) == ANSWER
    assert protocols == ["http/1.1"]


@pytest.mark.parametrize(
    ("is_trusted", "name"), [(False, "IP:127.0.0.1"), (True, "DNS:elsewhere.test")], ids=["authority", "name"]
)
async def test_upstream_with_another_authority_or_name_receives_no_request(
    authority: Path, tmp_path: Path, request: pytest.FixtureRequest, is_trusted: bool, name: str
) -> None:
    if is_trusted:
        request.getfixturevalue("trusted")
    protocols: list[str | None] = []
    async with run_raw_server(noting_protocol(protocols), certified(authority, tmp_path, name)) as port:
        with pytest.raises(ModelUnavailable, match="secure connection"):
            await complete(port)
    assert protocols == []


async def test_upstream_without_tls_receives_only_a_handshake() -> None:
    received: list[bytes] = []

    async def behave(connection: ServerConnection) -> None:
        received.append(await connection.reader.read(3))
        await connection.send(OK)

    async with run_raw_server(behave) as port:
        with pytest.raises(ModelUnavailable):
            await complete(port)
    assert received == [b"\x16\x03\x01"]  # a handshake, and no word of the request


async def test_answer_cut_within_tls_raises(trusted: Path, tmp_path: Path) -> None:

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(OK[:-3])
        connection.writer.transport.abort()  # without a word of TLS

    async with run_raw_server(behave, certified(trusted, tmp_path, "IP:127.0.0.1")) as port:
        with pytest.raises(ModelUnavailable, match="broke before"):
            await complete(port)


async def test_request_cancelled_during_the_tls_handshake_leaves_no_connection_open(
    trusted: Path, tmp_path: Path
) -> None:
    is_open: set[int] = set()

    async def behave(connection: ServerConnection) -> None:
        is_open.add(connection.number)
        try:
            await answer_with(OK)(connection)
        finally:
            is_open.discard(connection.number)

    async with run_raw_server(behave, certified(trusted, tmp_path, "IP:127.0.0.1")) as port:
        for steps in range(60):
            async with upstream(f"https://127.0.0.1:{port}/v1", retries=NEVER) as model:
                leaving = [asyncio.create_task(model.complete(REQUEST)) for _ in range(2)]
                for _ in range(steps):
                    await asyncio.sleep(0)
                for each in leaving:
                    each.cancel()
                assert await model.complete(REQUEST) == ANSWER
                await asyncio.gather(*leaving, return_exceptions=True)
            while is_open:
                await asyncio.sleep(0)


CREDENTIALS = b"\r\nProxy-Authorization: Basic " + b64encode(b"ann:s3cret!") + b"\r\n"


def noting(noted: list[bytes], answer: bytes) -> Behaviour:
    async def behave(connection: ServerConnection) -> None:
        while True:
            noted.append(await connection.request())
            await connection.send(answer)

    return behave


def tunnelling(noted: list[bytes], port: int) -> Behaviour:
    """A proxy that connects every tunnel to one port of this machine, whatever its host name."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1000):
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()

    async def behave(connection: ServerConnection) -> None:
        noted.append(await connection.request())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await connection.send(b"HTTP/1.1 200 Connection", b" established\r\nVia: 1.1 here\r", b"\n\r\n")
        await asyncio.gather(pump(connection.reader, writer), pump(reader, connection.writer))

    return behave


async def test_https_upstream_is_reached_through_a_tunnel_of_the_environments_proxy(
    trusted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[bytes] = []
    opened: list[bytes] = []
    tls = certified(trusted, tmp_path, "DNS:model.test")  # a name that only the proxy can resolve
    async with (
        run_raw_server(noting(received, OK), tls) as port,
        run_raw_server(tunnelling(opened, port)) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://ann:s3cret%21@127.0.0.1:{proxy}")
        async with upstream(f"https://model.test:{port}/v1", api_key="sk-1", retries=NEVER) as model:
            assert await model.complete(REQUEST) == ANSWER
            assert await model.complete(REQUEST) == ANSWER
    place = b"model.test:%d" % port
    assert opened == [b"CONNECT " + place + b" HTTP/1.1\r\nHost: " + place + CREDENTIALS + b"\r\n"]
    assert len(received) == 2
    for request in received:
        assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
        assert b"\r\nAuthorization: Bearer sk-1\r\n" in request
        assert b"proxy" not in request.lower()


async def test_certificate_behind_a_proxy_tunnel_is_verified(trusted: Path, tmp_path: Path) -> None:
    received: list[bytes] = []
    tls = certified(trusted, tmp_path, "DNS:elsewhere.test")
    async with (
        run_raw_server(noting(received, OK), tls) as port,
        run_raw_server(tunnelling([], port)) as proxy,
        upstream("https://model.test/v1", retries=NEVER, proxy=f"http://127.0.0.1:{proxy}") as model,
    ):
        with pytest.raises(ModelUnavailable, match="secure connection"):
            await model.complete(REQUEST)
    assert received == []


async def test_http_upstream_behind_a_proxy_is_requested_in_absolute_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[bytes] = []
    async with run_raw_server(noting(received, OK)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://ann:s3cret%21@127.0.0.1:{proxy}")
        async with upstream("http://model.test:8000/v1", retries=NEVER) as model:
            assert await model.complete(REQUEST) == ANSWER
            await model.complete(REQUEST)
    assert len(received) == 2
    for request in received:
        assert request.startswith(
            b"POST http://model.test:8000/v1/chat/completions HTTP/1.1\r\nHost: model.test:8000\r\n"
        )
        assert CREDENTIALS in request


async def test_http_proxy_that_refuses_credentials_is_reported_as_the_proxy() -> None:
    async with (
        run_raw_server(answer_with(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")) as proxy,
        upstream("http://model.test/v1", retries=NEVER, proxy=f"http://127.0.0.1:{proxy}") as model,
    ):
        with pytest.raises(ModelUnavailable, match="proxy refused its credentials"):
            await model.complete(REQUEST)


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", ModelUnavailable, "refused its credentials"),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\n<html>", ModelUnavailable, "status 502"),
        (b"", ModelUnavailable, "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n", ModelUnavailable, "closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", MalformedAnswer, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + OK, MalformedAnswer, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, MalformedAnswer, "not HTTP"),
    ],
)
async def test_proxy_that_opens_no_tunnel_receives_no_request(
    answer: bytes, kind: type[ModelError], message: str
) -> None:
    after: list[bytes] = []

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        rest = b""
        with suppress(ConnectionError):  # the client leaves with the answer half read
            await connection.send(answer)
            connection.writer.write_eof()
            rest = await connection.reader.read()
        after.append(rest)

    async with (
        run_raw_server(behave) as proxy,
        upstream(
            "https://model.test/v1", retries=NEVER, proxy=f"http://ann:s3cret@127.0.0.1:{proxy}"
        ) as model,
    ):
        with pytest.raises(kind, match=message) as caught:
            await model.complete(REQUEST)
        while not after:
            await asyncio.sleep(0)
    assert after == [b""]
    assert "s3cret" not in str(caught.value)


async def test_proxy_that_cannot_be_reached_is_reported_as_the_proxy() -> None:
    async with run_raw_server(answer_with()) as port:
        pass
    async with upstream("https://model.test/v1", retries=NEVER, proxy=f"http://127.0.0.1:{port}") as model:
        with pytest.raises(ModelUnavailable, match="proxy cannot be reached"):
            await model.complete(REQUEST)


async def test_cancelled_request_closes_its_proxy_tunnel() -> None:
    is_requested, is_left = asyncio.Event(), asyncio.Event()

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        is_requested.set()
        await connection.is_closed()
        is_left.set()

    async with (
        run_raw_server(behave) as proxy,
        upstream("https://model.test/v1", retries=NEVER, proxy=f"http://127.0.0.1:{proxy}") as model,
    ):
        pending = asyncio.create_task(model.complete(REQUEST))
        await is_requested.wait()
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        await is_left.wait()
