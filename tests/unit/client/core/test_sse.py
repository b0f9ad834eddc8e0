"""Events are taken from bytes, however they are cut and whatever ends their lines."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.client.core import sse
from turnledger.client.core.sse import EventParser, SentEvent
from turnledger.errors import RequestFailed

STREAM = (
    b"id: 1\nevent: turn.started\ndata: {}\n\n"
    b": \n\n"
    b'id: 2\nevent: text.delta\ndata: {"a":1}\n\n'
    b": \nid: x-7\n\n"
    b"data: one\ndata: two\nretry: 5\n\n\n"
    b"event: error\ndata:none\n\n"
    b"id: 9\nevent: turn.fin"
)
EVENTS = [
    (b"1", b"turn.started", b"{}"),
    (b"2", b"text.delta", b'{"a":1}'),
    (b"x-7", b"", b""),
    (b"", b"", b"one\ntwo"),
    (b"", b"error", b"none"),
]


def events_of(pieces: list[bytes]) -> list[SentEvent]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@given(cuts=st.lists(st.integers(0, 2 * len(STREAM)), max_size=12))
def test_cuts_and_line_ends_change_nothing(line_end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", line_end)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[start:end] for start, end in pairwise(places) if start < end]
    assert events_of(pieces) == EVENTS


def test_every_byte_by_itself() -> None:
    assert events_of([STREAM[at : at + 1] for at in range(len(STREAM))]) == EVENTS


def test_an_event_without_its_end_is_none() -> None:
    assert events_of([b"id: 1\nevent: text.delta\ndata: {}\n"]) == []


def test_a_long_event_in_many_pieces_is_joined_once() -> None:
    parser, piece = EventParser(), b"x" * 1000
    parser.feed(b"data: ")
    for _ in range(1000):
        parser.feed(piece)
    assert all(held is piece for held in parser._pieces[1:])  # joined for each of them, it would be quadratic
    ((_, _, data),) = parser.feed(b"\n\n")
    assert len(data) == 1_000_000


def test_an_event_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_BYTES", 1000)
    parser = EventParser()
    whole = b"data: " + b"x" * 90 + b"\n\n"
    assert (
        len([event for _ in range(50) for event in parser.feed(whole[:50]) + parser.feed(whole[50:])]) == 50
    )
    parser.feed(b"data: ")
    for _ in range(9):
        parser.feed(b"x" * 100)
    with pytest.raises(RequestFailed, match="without end"):
        parser.feed(b"x" * 100)
