"""Server-sent events are parsed across any chunk boundary; the feed yields every change once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.client.script import CHAT, CUT, UNREACHED, Script, error_event, error_reply, event_stream
from tests.unit.model.shapes import repeatable
from turnledger import errors
from turnledger.client.core import sse
from turnledger.client.core.exchange import Pacing, Retries
from turnledger.client.core.feed import FeedFollower
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
@repeatable
@given(cuts=st.lists(st.integers(0, 2 * len(STREAM)), max_size=12))
def test_event_parser_ignores_chunk_boundaries_and_line_endings(line_end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", line_end)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[start:end] for start, end in pairwise(places) if start < end]
    assert events_of(pieces) == EVENTS


def test_event_parser_accepts_single_bytes() -> None:
    assert events_of([STREAM[at : at + 1] for at in range(len(STREAM))]) == EVENTS


def test_event_parser_drops_an_incomplete_event() -> None:
    assert events_of([b"id: 1\nevent: text.delta\ndata: {}\n"]) == []


def test_event_parser_refuses_an_endless_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_BYTES", 1000)
    parser = EventParser()
    whole = b"data: " + b"x" * 90 + b"\n\n"
    assert (
        len([event for _ in range(50) for event in parser.feed(whole[:50]) + parser.feed(whole[50:])]) == 50
    )
    parser.feed(b"data: ")
    for _ in range(9):
        parser.feed(b"x" * 100)
    with pytest.raises(RequestFailed, match="endless"):
        parser.feed(b"x" * 100)


GONE = error_reply(410, "gone_for_good")


def change(position: str, kind: str) -> bytes:
    data = b'{"type":"%s","at":5,"chat":"%s"}' % (kind.encode(), CHAT.encode())
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (position.encode(), kind.encode(), data)


def read_feed(script: Script, after: str | None = None) -> list[tuple[str, str]]:
    """Read changes until the scripted server ends the feed with an error."""
    with pytest.raises(errors.RequestFailed):
        script.play(FeedFollower(script.new_retry_count(), script.retries, after).steps())
    return [(each.type, each.position) for each in script.items]


def positions(script: Script) -> list[str | None]:
    return [each.headers.get("last-event-id") for each in script.received]


def test_feed_resumes_after_the_last_received_change() -> None:
    script = Script(
        event_stream(change("a", "start"), change("b", "chat.created")[:20], end=CUT),
        CUT,
        event_stream(change("b", "chat.created"), end=CUT),
        GONE,
    )
    assert read_feed(script) == [("start", "a"), ("chat.created", "b")]
    assert positions(script) == [None, "a", "a", "b"]


def test_feed_resumes_at_the_position_of_a_comment() -> None:
    script = Script(event_stream(change("a", "start"), b": \nid: c\n\n", end=CUT), GONE)
    assert read_feed(script) == [("start", "a")]
    assert positions(script) == [None, "c"]


def test_feed_starts_after_a_given_position() -> None:
    script = Script(GONE)
    read_feed(script, "p")
    assert positions(script) == ["p"]


def test_feed_waits_forever_for_a_server_it_has_reached_once() -> None:
    script = Script(
        event_stream(change("a", "start"), error_event("shutting_down")),
        *[UNREACHED] * 30,
        GONE,
        retries=Retries(times=3),
    )
    assert read_feed(script) == [("start", "a")]
    assert script.pauses[-20:] == [5.0] * 20


def test_feed_gives_up_on_a_server_it_never_reached() -> None:
    script = Script(*[UNREACHED] * 5)
    with pytest.raises(errors.ServerUnavailable, match="did not answer"):
        script.play(FeedFollower(script.new_retry_count(), script.retries, None).steps())


@pytest.mark.parametrize(
    "answer",
    [
        error_reply(401, "invalid_api_key"),
        event_stream(change("a", "start"), error_event("token_ended", "x")),
    ],
)
def test_feed_raises_permanent_errors(answer: Any) -> None:
    script = Script(answer)
    with pytest.raises(errors.TurnledgerError) as raised:
        script.play(FeedFollower(script.new_retry_count(), script.retries, None).steps())
    assert raised.value.code in ("invalid_api_key", "token_ended")


def test_feed_without_retries_raises_at_the_first_break() -> None:
    script = Script(event_stream(change("a", "start"), end=CUT), retries=Retries(times=0))
    with pytest.raises(errors.ServerUnavailable):
        script.play(FeedFollower(script.new_retry_count(), script.retries, None).steps())


def test_feed_reconnects_with_jitter() -> None:
    script = Script(
        event_stream(change("a", "start"), end=CUT), *[UNREACHED] * 9, GONE, retries=Retries(times=3)
    )
    script.pacing = Pacing(now=lambda: 0.0, chance=lambda: 0.5)
    assert read_feed(script) == [("start", "a")]
    assert script.pauses[-5:] == [3.75] * 5


def test_feed_ignores_a_position_that_no_header_can_carry() -> None:
    script = Script(
        event_stream(change("a", "start"), b'id: \xff\ndata: {"type":"start"}\n\n', end=CUT), GONE
    )
    read_feed(script)
    assert positions(script) == [None, "a"]


@pytest.mark.parametrize("after", ["ä", "a\nb"])
def test_feed_refuses_to_start_after_a_position_that_no_header_can_carry(after: str) -> None:
    with pytest.raises(errors.InvalidInput, match="position"):
        FeedFollower(Script().new_retry_count(), Retries(), after)
