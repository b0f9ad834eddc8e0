"""A compressed body is decoded in pieces of a bounded size, wherever it is cut."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from turnledger.errors import MalformedAnswer
from turnledger.runners.http.response import GzipDecoder

TEXT = bytes(range(256)) * 20


def decoded(decoder: GzipDecoder, *pieces: bytes, limit: int = 1000) -> bytes:
    told = b""
    for piece in pieces:
        decoder.add(piece)
        while decoder.waits:
            read = decoder.read(limit)
            assert len(read) <= limit
            told += read
    return told


@pytest.mark.parametrize("limit", [1, 7, 5120, 10_000])
def test_body_cut_at_every_byte_is_decoded_whole(limit: int) -> None:
    packed = gzip.compress(TEXT)
    decoder = GzipDecoder()
    assert not decoder.is_complete
    assert decoded(decoder, *(packed[at : at + 1] for at in range(len(packed))), limit=limit) == TEXT
    assert decoder.is_complete


def test_members_behind_each_other_are_one_body() -> None:
    decoder = GzipDecoder()
    assert decoded(decoder, gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")) == b"one two"
    assert decoder.is_complete


def test_read_of_one_of_many_members_copies_none_of_the_others() -> None:
    body = gzip.compress(b"") * 50_000
    decoder = GzipDecoder()
    decoder.add(body)
    tracemalloc.start()
    assert decoder.read(1000) == b""
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(body) / 10
    assert decoded(decoder, gzip.compress(b"end")) == b"end"


def test_body_that_lacks_its_end_is_not_complete() -> None:
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
def test_bytes_that_are_not_gzip_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="not the gzip"):
        decoded(GzipDecoder(), body)
