"""Bodies are read up to a limit, and errors are found where servers put them."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from tests.unit.runners.asking import ASKED, asking, payloads, upstream
from tests.unit.runners.http.raw_server import Heard, serving
from turnledger.errors import MalformedAnswer, ModelRefused
from turnledger.runners.upstream import streamed_answer
from turnledger.testing.upstream import Data, Head, ScriptedUpstream, Status

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"message": "No.", "type": "t", "param": "p", "code": 7, "trace": "..."}}',
         {"message": "No.", "type": "t", "param": "p", "code": 7}),
        (b'{"error": "No."}', {"message": "No."}),
        (b'{"object": "error", "message": "No.", "code": 400}', {"message": "No.", "code": 400}),
        (b'{"detail": "No."}', {}),
        (b'{"error": 7}', {}),
        (b"[]", {}),
        (b"<html>", {}),
        (b"\xff", {}),
        (b"[" * 50_000, {}),
        (b"", {}),
        (b'{"error": "' + b"x" * 100_000 + b'"}', {}),
    ],
)  # fmt: skip
async def test_errors_are_found_where_servers_put_them(body: bytes, error: dict[str, Any]) -> None:
    async with asking(ScriptedUpstream([Status(400, body)])) as model:
        with pytest.raises(ModelRefused) as caught:
            await model.complete(ASKED)
    assert caught.value.error == error


async def test_an_answer_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_answer, "ANSWER_BYTES", 20)
    async with asking(
        ScriptedUpstream([Data(b'"%b"' % (b"x" * 18))], [Data(b'"%b"' % (b"x" * 19))])
    ) as model:
        assert len(await model.complete(ASKED)) == 20
        with pytest.raises(MalformedAnswer, match="more than 20 bytes"):
            await model.complete(ASKED)


async def test_what_is_not_read_to_its_end_holds_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_answer, "ANSWER_BYTES", 20)
    more = Status(200, b"x" * 21, {"Content-Length": "99"})
    async with asking(ScriptedUpstream([more], ["ok"])) as model:
        with pytest.raises(MalformedAnswer):
            await model.complete(ASKED)
        assert model._pool is not None
        while model._pool._open:
            await asyncio.sleep(0)


@pytest.mark.parametrize("chunked", [True, False])
async def test_an_answer_may_end_with_its_connection(chunked: bool) -> None:
    head = Head("application/json", chunked=chunked)
    async with asking(ScriptedUpstream([head, "Hi"])) as model:
        assert b'"Hi"' in await model.complete(ASKED)


async def test_half_an_answer_that_ends_with_its_connection_is_none() -> None:
    head = Head("application/json", chunked=False)
    async with asking(ScriptedUpstream([head, Data(b'{"choices": [')])) as model:
        with pytest.raises(MalformedAnswer):
            await model.complete(ASKED)


async def test_an_error_in_pieces_is_read_whole() -> None:
    body = b'{"error": {"message": "' + b"x" * 50_000 + b'"}}'
    async with asking(ScriptedUpstream([Status(400, body)])) as model:
        with pytest.raises(ModelRefused) as caught:
            await model.complete(ASKED)
    assert caught.value.error == {"message": "x" * 50_000}


async def test_an_error_that_does_not_end_is_told_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_answer, "ERROR_SECONDS", 0.01)
    async with asking(ScriptedUpstream([Status(404, b'{"error": "No', {"Content-Length": "99"})])) as model:
        with pytest.raises(ModelRefused) as caught:
            await model.complete(ASKED)
    assert (caught.value.status, caught.value.error) == (404, {})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("header", "is_told"),
    [
        (b"Content-Encoding: deflate\r\nContent-Length: 2", True),
        (b"Content-Encoding: gzip, gzip\r\nContent-Length: 2", True),
        (b"Content-Encoding: identity, BR\r\nContent-Length: 2", True),
        (b"Transfer-Encoding: gzip, chunked", True),
        (b"Content-Encoding: identity\r\nContent-Length: 2", False),
        (b"Content-Encoding:\r\nContent-Length: 2", False),
        (b"Transfer-Encoding: Chunked", False),
    ],
)
async def test_answer_compressed_by_another_method_than_gzip_is_malformed(
    header: bytes, is_told: bool, stream: bool
) -> None:
    asked: list[bytes] = []

    async def behave(heard: Heard) -> None:
        asked.append(await heard.request())
        body = b"{}" if b"Length" in header else b"2\r\n{}\r\n0\r\n\r\n"
        await heard.say(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (header, body))

    async with serving(behave) as port, upstream(f"http://127.0.0.1:{port}") as model:
        with pytest.raises(MalformedAnswer, match="compressed") if is_told else nullcontext():
            await (payloads(model) if stream else model.complete(ASKED))
    assert len(asked) == 1
    assert b"\r\nAccept-Encoding: gzip\r\n" in asked[0]
