"""A response wakes its reader when data arrives; gzip is decoded in bounded pieces."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc

import pytest

from tests.unit.runners.http.connections import connection_of, pool_to, send_request
from tests.unit.runners.http.raw_server import ServerConnection, answer_with
from turnledger.errors import MalformedAnswer
from turnledger.runners.http.response import GzipDecoder
from turnledger.testing.gates import Gate

HEAD = b"HTTP/1.1 %d Said\r\nContent-Length: 4\r\n\r\n"


@pytest.mark.parametrize(
    ("status", "is_streamed", "after"), [(200, True, [1, 2, 3]), (200, False, [3]), (404, False, [1, 2, 3])]
)
async def test_reader_is_woken_for_the_head_and_pieces_that_it_waits_for(
    status: int, is_streamed: bool, after: list[int]
) -> None:
    gates = [Gate(), Gate(), Gate()]

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        for gate, piece in zip(gates, (HEAD % status, b"ab", b"cd"), strict=True):
            await gate.pass_through()
            await connection.send(piece)
        await asyncio.Event().wait()

    woken = []
    async with pool_to(behave) as pool:
        response = send_request(await connection_of(pool), is_streamed=is_streamed)
        for number, gate in enumerate(gates, 1):
            arrival = response.arrival()
            gate.release()
            for _ in range(50):
                await asyncio.sleep(0)
            if arrival.done():
                woken.append(number)
        response.release()
    assert woken == after


async def test_response_pieces_that_arrived_together_are_taken_together() -> None:
    sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
    async with pool_to(answer_with(sent)) as pool:
        response = send_request(await connection_of(pool))
        await response.wait_for_head()
        assert response.is_whole
        assert response.take() == b"abcd"
        assert response.take() is None


async def test_response_body_is_read_only_until_it_exceeds_the_limit() -> None:
    sent = HEAD % 200 + b"abcd"
    async with pool_to(answer_with(sent)) as pool:
        for is_streamed in (True, False):
            response = send_request(await connection_of(pool), is_streamed=is_streamed)
            await response.wait_for_head()
            assert await response.body(4) == b"abcd"

        response = send_request(await connection_of(pool), room=3, is_streamed=False)
        await response.wait_for_head()
        assert len(await response.body(3)) > 3
        response.release()


async def test_response_header_names_are_lower_case() -> None:
    sent = b"HTTP/1.1 200 OK\r\nX-SHOULD-Retry: false\r\nContent-Length: 0\r\n\r\n"
    async with pool_to(answer_with(sent)) as pool:
        response = send_request(await connection_of(pool))
        await response.wait_for_head()
        assert response.headers == {b"x-should-retry": b"false", b"content-length": b"0"}


TEXT = bytes(range(256)) * 20


def decoded(decoder: GzipDecoder, *pieces: bytes, limit: int = 1000) -> bytes:
    received = b""
    for piece in pieces:
        decoder.add(piece)
        while decoder.waits:
            read = decoder.read(limit)
            assert len(read) <= limit
            received += read
    return received


@pytest.mark.parametrize("limit", [1, 7, 5120, 10_000])
def test_gzip_body_split_at_every_byte_is_decoded_whole(limit: int) -> None:
    packed = gzip.compress(TEXT)
    decoder = GzipDecoder()
    assert not decoder.is_complete
    assert decoded(decoder, *(packed[at : at + 1] for at in range(len(packed))), limit=limit) == TEXT
    assert decoder.is_complete


def test_gzip_members_in_sequence_are_decoded_as_one_body() -> None:
    decoder = GzipDecoder()
    assert decoded(decoder, gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")) == b"one two"
    assert decoder.is_complete


def test_gzip_read_of_one_of_many_members_copies_none_of_the_others() -> None:
    body = gzip.compress(b"") * 50_000
    decoder = GzipDecoder()
    decoder.add(body)
    tracemalloc.start()
    assert decoder.read(1000) == b""
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(body) / 10
    assert decoded(decoder, gzip.compress(b"end")) == b"end"


def test_gzip_body_without_its_end_is_not_complete() -> None:
    packed = gzip.compress(TEXT)
    for end in range(len(packed)):
        decoder = GzipDecoder()
        assert TEXT.startswith(decoded(decoder, packed[:end]))
        assert not decoder.is_complete


@pytest.mark.parametrize(
    "body",
    [b"{}", gzip.compress(b"{}") + b"{}", gzip.compress(TEXT)[:-8] + b"x" * 8],
    ids=[
        "plain",
        "trailing bytes",
        "wrong checksum",
    ],  # packed bytes hold the time, and would name other tests
)
def test_gzip_decoder_refuses_bytes_that_are_not_gzip(body: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="not the gzip"):
        decoded(GzipDecoder(), body)
