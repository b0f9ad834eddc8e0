"""An upstream behind TLS must be who it says it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runners.asking import ASKED, upstream
from tests.unit.runners.http.raw_server import Behaviour, Heard, saying, serving
from tests.unit.runners.upstream.certificates import certified
from turnledger.errors import ModelUnavailable
from turnledger.runners.upstream.upstream import Retries

pytestmark = pytest.mark.anyio

ANSWER = b'{"choices": []}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
NEVER = Retries(limit=0)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """TLS is a matter of the loop: each test runs on both."""
    return "asyncio", {"use_uvloop": request.param}


async def complete(port: int) -> bytes:
    async with upstream(f"https://127.0.0.1:{port}/v1", retries=NEVER) as model:
        return await model.complete(ASKED)


def noting_protocol(noted: list[str | None]) -> Behaviour:
    async def behave(heard: Heard) -> None:
        noted.append(heard.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await saying(OK)(heard)

    return behave


async def test_who_is_certified_is_asked_in_http_1(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    protocols: list[str | None] = []
    tls = certified(authority, tmp_path, "IP:127.0.0.1")
    async with (
        serving(noting_protocol(protocols), tls) as port,
        upstream(f"https://127.0.0.1:{port}/v1", retries=NEVER) as model,
    ):
        assert await model.complete(ASKED) == ANSWER
        assert await model.complete(ASKED) == ANSWER
    assert protocols == ["http/1.1"]


async def test_who_is_certified_by_nobody_known_is_not_asked(authority: Path, tmp_path: Path) -> None:
    asked: list[str | None] = []
    async with serving(noting_protocol(asked), certified(authority, tmp_path, "IP:127.0.0.1")) as port:
        with pytest.raises(ModelUnavailable, match="secure connection"):
            await complete(port)
    assert asked == []


async def test_who_is_certified_under_another_name_is_not_asked(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    asked: list[str | None] = []
    async with serving(noting_protocol(asked), certified(authority, tmp_path, "DNS:elsewhere.test")) as port:
        with pytest.raises(ModelUnavailable, match="secure connection"):
            await complete(port)
    assert asked == []


async def test_who_does_not_speak_tls_is_not_asked() -> None:
    heard_bytes: list[bytes] = []

    async def behave(heard: Heard) -> None:
        heard_bytes.append(await heard.reader.read(3))
        await heard.say(OK)

    async with serving(behave) as port:
        with pytest.raises(ModelUnavailable):
            await complete(port)
    assert heard_bytes == [b"\x16\x03\x01"]  # a handshake, and no word of the request


async def test_an_answer_cut_within_tls_is_not_whole(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))

    async def behave(heard: Heard) -> None:
        await heard.request()
        await heard.say(OK[:-3])
        heard.writer.transport.abort()  # without a word of TLS

    async with serving(behave, certified(authority, tmp_path, "IP:127.0.0.1")) as port:
        with pytest.raises(ModelUnavailable, match="cut before"):
            await complete(port)


async def test_who_is_cancelled_while_connecting_harms_nobody(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    is_open: set[int] = set()

    async def behave(heard: Heard) -> None:
        is_open.add(heard.number)
        try:
            await saying(OK)(heard)
        finally:
            is_open.discard(heard.number)

    async with serving(behave, certified(authority, tmp_path, "IP:127.0.0.1")) as port:
        for steps in range(60):
            async with upstream(f"https://127.0.0.1:{port}/v1", retries=NEVER) as model:
                leaving = [asyncio.create_task(model.complete(ASKED)) for _ in range(2)]
                for _ in range(steps):
                    await asyncio.sleep(0)
                for each in leaving:
                    each.cancel()
                assert await model.complete(ASKED) == ANSWER
                await asyncio.gather(*leaving, return_exceptions=True)
            while is_open:
                await asyncio.sleep(0)
