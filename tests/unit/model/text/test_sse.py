"""Server-sent events are split from bytes in linear time and within a limit."""

from __future__ import annotations

import tracemalloc

import pytest

from turnledger.model.text.sse import EventSplitter, fields_of


@pytest.mark.parametrize(("piece", "end"), [(b"data: x\n", b"\n"), (b"x" * 90, b"\n\n")])
def test_event_in_many_pieces_is_joined_once(piece: bytes, end: bytes) -> None:
    splitter = EventSplitter(100_000, ValueError)
    for _ in range(1000):
        assert splitter.split(piece) == []
    assert all(held is piece for held in splitter._pieces)  # joined for each of them, it would be quadratic
    assert splitter.split(end) == [(piece * 1000).rstrip()]
    assert splitter.rest() == b""


def test_event_beyond_the_limit_raises_the_error_of_its_caller() -> None:
    splitter = EventSplitter(10, lambda limit: LookupError(f"more than {limit}"))
    splitter.split(b"data: 1\n\n" * 10 + b"data: 2345")
    with pytest.raises(LookupError, match="more than 10"):
        splitter.split(b"6")


@pytest.mark.parametrize("line", [b"ab", b"%d:"])
def test_event_of_many_lines_takes_little_memory(line: bytes) -> None:
    event = b"\n".join(line.replace(b"%d", b"%d" % number) for number in range(100_000)) + b"\ndata: x"
    tracemalloc.start()
    assert fields_of(event) == {b"data": [b"x"]}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(event) / 10


def test_event_fields_keep_their_order_and_comments_are_left_out() -> None:
    event = b"\xef\xbb\xbfdata: a\n: ping\nid\ndata:b:c\ndata:  d"
    assert fields_of(event) == {b"data": [b"a", b"b:c", b" d"], b"id": [b""]}
