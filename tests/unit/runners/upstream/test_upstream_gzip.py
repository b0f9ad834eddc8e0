"""Answers that come compressed, whole and streamed: cut anywhere, and longer than they look."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.runners.asking import ASKED, payloads, upstream
from tests.unit.runners.http.raw_server import Behaviour, Heard, saying, saying_once, serving
from turnledger.errors import MalformedAnswer, ModelRefused, ModelUnavailable
from turnledger.runners.upstream import streamed_answer
from turnledger.runners.upstream.upstream import Retries

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SAID = [b'{"a": %d}' % number for number in range(5)]
NEVER = Retries(limit=0)
BOMB = 48 * 1024 * 1024


def streamed(*, done: bool = True) -> bytes:
    """Five events, each flushed by itself."""
    packer = zlib.compressobj(wbits=31)
    packed = b""
    for event in [*SAID, b"[DONE]"] if done else SAID:
        packed += packer.compress(b"data: %b\n\n" % event) + packer.flush(zlib.Z_SYNC_FLUSH)
    return packed + packer.flush()


def bomb(start: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(
        [
            packer.compress(start),
            *(packer.compress(b"x" * 1024 * 1024) for _ in range(BOMB >> 20)),
            packer.flush(),
        ]
    )


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Encoding: GZip\r\nContent-Length: %d\r\n\r\n%b" % (
        status, len(body), body,
    )  # fmt: skip


@contextmanager
def in_memory(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


async def test_whole_answer_is_decoded_and_its_connection_used_again() -> None:
    counted: list[int] = []

    async def behave(heard: Heard) -> None:
        counted.append(heard.number)
        await saying(whole(gzip.compress(b'{"choices": []}')))(heard)

    async with serving(behave) as port, upstream(f"http://127.0.0.1:{port}") as model:
        for _ in range(2):
            assert await model.complete(ASKED) == b'{"choices": []}'
    assert counted == [0]


async def test_error_is_decoded() -> None:
    body = gzip.compress(b'{"error": {"message": "No."}}')
    async with (
        serving(saying(whole(body, b"400 Bad"))) as port,
        upstream(f"http://127.0.0.1:{port}") as model,
    ):
        with pytest.raises(ModelRefused) as caught:
            await model.complete(ASKED)
    assert caught.value.error == {"message": "No."}


async def test_stream_in_pieces_of_one_byte_is_the_same_stream() -> None:
    packed = streamed()
    pieces = [chunk(packed[at : at + 1]) for at in range(len(packed))]
    async with (
        serving(saying(CHUNKED, *pieces, b"0\r\n\r\n")) as port,
        upstream(f"http://127.0.0.1:{port}") as model,
    ):
        assert await payloads(model) == SAID


async def test_event_is_given_before_the_stream_goes_on() -> None:
    goes_on = asyncio.Event()
    packer = zlib.compressobj(wbits=31)
    first, rest = (
        packer.compress(b"data: %b\n\n" % each) + packer.flush(zlib.Z_SYNC_FLUSH)
        for each in (b"1", b"[DONE]")
    )

    async def behave(heard: Heard) -> None:
        await heard.request()
        await heard.say(CHUNKED, chunk(first))
        await goes_on.wait()
        await heard.say(chunk(rest + packer.flush()), b"0\r\n\r\n")

    async with (
        serving(behave) as port,
        upstream(f"http://127.0.0.1:{port}") as model,
        model.stream(ASKED) as batches,
    ):
        assert await anext(aiter(batches)) == [b"1"]
        goes_on.set()
        assert [batch async for batch in batches] == []


@pytest.mark.parametrize("is_marked", [True, False], ids=["chunked", "until it closes"])
async def test_stream_cut_anywhere_is_never_taken_for_a_whole_one(is_marked: bool) -> None:
    packed = streamed(done=False)
    ends = iter(range(len(packed)))

    def cut() -> bytes:
        piece = packed[: next(ends)]
        return CHUNKED + chunk(piece) + b"0\r\n\r\n" if is_marked else HEAD + b"\r\n" + piece

    async def behave(heard: Heard) -> None:
        await heard.request()
        await heard.say(cut())

    async with (
        serving(behave) as port,
        upstream(f"http://127.0.0.1:{port}", retries=NEVER, reuse=False) as model,
    ):
        for _ in packed:
            told: list[bytes] = []
            with pytest.raises((ModelUnavailable, MalformedAnswer)):
                async with model.stream(ASKED) as batches:
                    async for batch in batches:
                        told += batch
            assert told == SAID[: len(told)]


def answering(body: bytes) -> Behaviour:
    return saying_once(CHUNKED, chunk(body), b"0\r\n\r\n")


async def test_whole_answer_that_decodes_to_gigabytes_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamed_answer, "ANSWER_BYTES", 1024 * 1024)
    body = bomb(b'"')
    async with serving(answering(body)) as port, upstream(f"http://127.0.0.1:{port}") as model:
        with in_memory(8 * 1024 * 1024), pytest.raises(MalformedAnswer, match="more than 1048576 bytes"):
            await model.complete(ASKED)


async def test_stream_that_decodes_to_gigabytes_fills_neither_memory_nor_loop() -> None:
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    body = bomb(b": ping\n\n" * 1000 + b"data: ")
    async with serving(answering(body)) as port, upstream(f"http://127.0.0.1:{port}") as model:
        counting = asyncio.create_task(count())
        with in_memory(40 * 1024 * 1024), pytest.raises(MalformedAnswer, match="more than 16777216 bytes"):
            await payloads(model)
        counting.cancel()
    assert steps >= 60


async def test_bytes_that_are_not_gzip_are_malformed() -> None:
    async with serving(saying(whole(b"{}"))) as port, upstream(f"http://127.0.0.1:{port}") as model:
        with pytest.raises(MalformedAnswer, match="not the gzip"):
            await model.complete(ASKED)
