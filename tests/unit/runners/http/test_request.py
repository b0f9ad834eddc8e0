"""Each request begins with the same lines, and one may be made on its own."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.runners.http.raw_server import OK, Heard, saying, saying_once, serving
from turnledger.errors import InvalidInput, ModelUnavailable
from turnledger.runners.http.dial import address_of
from turnledger.runners.http.pool import get, head_of
from turnledger.runners.upstream.failures import Unheard

pytestmark = pytest.mark.anyio

ADDRESS = address_of("https://api.example.com/v1?a=b")


def test_the_lines_of_a_request() -> None:
    lines = head_of("POST", ADDRESS, "/models", "sk-1").decode().split("\r\n")
    assert lines[0] == "POST /v1/models?a=b HTTP/1.1"
    assert lines[1] == "Host: api.example.com"
    assert "Authorization: Bearer sk-1" in lines
    assert "Accept-Encoding: gzip" in lines
    assert lines[-1] == ""


@pytest.mark.parametrize("api_key", [None, ""])
def test_without_an_api_key_none_is_told(api_key: str | None) -> None:
    assert b"Authorization" not in head_of("GET", ADDRESS, "/models", api_key)


def test_an_api_key_cannot_add_lines() -> None:
    with pytest.raises(InvalidInput):
        head_of("GET", ADDRESS, "/models", "sk-1\r\nX-Injected: 1")


async def got(port: int, limit: int = 100, seconds: float = 60.0) -> tuple[int, bytes]:
    answered = await get(f"http://127.0.0.1:{port}/v1", "/models", None, seconds=seconds, limit=limit)
    return answered.status, answered.body


@pytest.mark.parametrize("status", [200, 404])
async def test_any_answer_is_given(status: int) -> None:
    async with serving(saying(OK.replace(b"200", b"%d" % status))) as port:
        assert await got(port) == (status, b"ok")


async def test_of_a_long_one_the_beginning_is_given() -> None:
    async with serving(saying_once(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n12345")) as port:
        assert await got(port, limit=3) == (200, b"12345")


async def test_half_an_answer_and_none_are_told_apart() -> None:
    async with serving(saying_once(OK[:-1])) as port:
        with pytest.raises(ModelUnavailable):
            await got(port)
    async with serving(saying_once()) as port:
        with pytest.raises(Unheard):
            await got(port)


async def test_there_is_an_end_to_waiting() -> None:
    async def behave(heard: Heard) -> None:
        await asyncio.Event().wait()

    async with serving(behave) as port:
        with pytest.raises(TimeoutError):
            await got(port, seconds=0.01)
