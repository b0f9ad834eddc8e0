"""Events are read from bytes, however they are cut and whatever ends their lines."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.errors import MalformedAnswer
from turnledger.runners.upstream.streamed_answer import EventStream

PAYLOADS = st.lists(
    st.binary(min_size=1, max_size=12).filter(lambda each: not {10, 13} & set(each)), max_size=6
)
NOISE = st.sampled_from(
    [b"", b": comment\n", b"event: message\n", b"id: 3\nretry: 5\n", b":\n\n", b"\n", b"data\n\n"]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def payloads_of(pieces: list[bytes]) -> list[bytes]:
    events = EventStream()
    found = [payload for piece in pieces for payload in events.feed(piece)]
    return found + events.end()


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Bytes of a stream, and the payloads in it."""
    raw, payloads = b"", draw(PAYLOADS)
    for payload in payloads:
        space = b" " if payload.startswith(b" ") else draw(st.sampled_from([b"", b" "]))
        raw += draw(NOISE) + b"data:" + space + payload + b"\n\n"
    return raw.replace(b"\n", draw(ENDS)), payloads


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:stop] for start, stop in pairwise(bounds)]


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_of_the_bytes_gives_the_same_payloads(
    stream: tuple[bytes, list[bytes]], places: list[int]
) -> None:
    raw, payloads = stream
    assert payloads_of([raw]) == payloads
    assert payloads_of(cut(raw, places)) == payloads


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"a", b"\n").replace(b"b", b"data: ")), st.data())
def test_any_bytes_mean_the_same_in_any_pieces(raw: bytes, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(raw)), max_size=8))
    assert payloads_of(cut(raw, places)) == payloads_of([raw]) == payloads_of([bytes([each]) for each in raw])


@pytest.mark.parametrize(
    ("raw", "payloads"),
    [
        (b"data: one\n\ndata: two\n\n", [b"one", b"two"]),
        (b"data:one\n\n", [b"one"]),
        (b"data:  one\n\n", [b" one"]),
        (b"data: one\ndata: two\n\n", [b"one two"]),
        (b"\xef\xbb\xbfdata: one\n\n", [b"one"]),
        (b"event: error\ndata: one\n\n", [b"one"]),
        (b": ping\n\n: ping\n\ndata: one\n\n", [b"one"]),
        (b"data: \n\ndata:\n\ndata\n\n", []),
        (b"database: one\n\n", []),
        (b"data: one\n\n\n\ndata: two\n\n", [b"one", b"two"]),
        (b"data: one\r\n\r\ndata: two\r\n\r\n", [b"one", b"two"]),
        (b"data: one\r\rdata: two\r\r", [b"one", b"two"]),
        (b"data: without its blank line", [b"without its blank line"]),
        (b"data: half of it\n", [b"half of it"]),
        (b"", []),
    ],
)
def test_the_forms_of_events(raw: bytes, payloads: list[bytes]) -> None:
    assert payloads_of([raw]) == payloads


def test_a_payload_is_given_as_soon_as_it_is_whole() -> None:
    events = EventStream()
    assert events.feed(b"data: one\n") == []
    assert events.feed(b"\ndata: tw") == [b"one"]
    assert events.feed(b"o\n\n") == [b"two"]


def test_an_event_cannot_fill_the_memory() -> None:
    events = EventStream(limit=20)
    events.feed(b"data: 01234567890123")
    with pytest.raises(MalformedAnswer, match="more than 20 bytes"):
        events.feed(b"x")


def test_lines_without_an_end_of_event_cannot_fill_the_memory_either() -> None:
    events = EventStream(limit=20)
    with pytest.raises(MalformedAnswer):
        for _ in range(10):
            events.feed(b"data: x\n")


def test_many_events_together_may_be_longer_than_one() -> None:
    events = EventStream(limit=20)
    assert len(events.feed(b"data: 0123456789\n\n" * 100)) == 100
    for _ in range(3):
        assert events.feed(b"data: 0123456789") == []
        assert events.feed(b"\n\n") == [b"0123456789"]
