"""A streamed answer: its events, its bounded body, its end, and the return of its connection."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from tests.unit.runners.http.raw_server import ServerConnection, run_raw_server
from tests.unit.runners.upstream_requests import REQUEST, open_upstream, payloads, text_of, upstream
from turnledger import Chat
from turnledger.errors import MalformedAnswer, ModelRefused
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.error_cleaner import MESSAGE_LENGTH
from turnledger.runners.upstream import streamed_answer
from turnledger.runners.upstream.streamed_answer import EventStream
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Data, End, Head, ScriptedUpstream, Status

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


@repeatable
@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_event_stream_split_anywhere_yields_the_same_payloads(
    stream: tuple[bytes, list[bytes]], places: list[int]
) -> None:
    raw, payloads = stream
    assert payloads_of([raw]) == payloads
    assert payloads_of(cut(raw, places)) == payloads


@repeatable
@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"a", b"\n").replace(b"b", b"data: ")), st.data())
def test_event_stream_of_any_bytes_yields_the_same_payloads_in_any_pieces(
    raw: bytes, data: st.DataObject
) -> None:
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
        (b"data: \n\ndata: one\n\n", [b"one"]),
        (b"data: one\rdata: two\n\n", [b"one two"]),
        (b"database: one\n\n", []),
        (b"data: one\n\n\n\ndata: two\n\n", [b"one", b"two"]),
        (b"data: one\r\n\r\ndata: two\r\n\r\n", [b"one", b"two"]),
        (b"data: one\r\rdata: two\r\r", [b"one", b"two"]),
        (b"data: without its blank line", [b"without its blank line"]),
        (b"data: half of it\n", [b"half of it"]),
        (b"", []),
    ],
)
def test_event_stream_parses_every_form_of_event(raw: bytes, payloads: list[bytes]) -> None:
    assert payloads_of([raw]) == payloads


def test_event_stream_yields_a_payload_as_soon_as_it_is_complete() -> None:
    events = EventStream()
    assert events.feed(b"data: one\n") == []
    assert events.feed(b"\ndata: tw") == [b"one"]
    assert events.feed(b"o\n\n") == [b"two"]


def test_event_cut_within_its_text_continues_with_the_next_piece() -> None:
    assert payloads_of([b"data: what is ", b"data: ?\n\n"]) == [b"what is data: ?"]


def test_event_beyond_the_byte_limit_is_malformed() -> None:
    events = EventStream(limit=20)
    events.feed(b"data: 01234567890123")
    with pytest.raises(MalformedAnswer, match="more than 20 bytes"):
        events.feed(b"x")


def test_event_of_many_lines_beyond_the_byte_limit_is_malformed() -> None:
    events = EventStream(limit=20)
    with pytest.raises(MalformedAnswer):
        for _ in range(10):
            events.feed(b"data: x\n")


def test_events_in_one_feed_may_exceed_the_limit_of_one_event() -> None:
    events = EventStream(limit=20)
    assert len(events.feed(b"data: 0123456789\n\n" * 100)) == 100
    for _ in range(3):
        assert events.feed(b"data: 0123456789") == []
        assert events.feed(b"\n\n") == [b"0123456789"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"message": "No.", "type": "t", "param": "p", "code": 7, "trace": "..."}}',
         {"message": "No.", "type": "t", "param": "p", "code": 7}),
        (b'{"error": "No."}', {"message": "No."}),
        (b'{"object": "error", "message": "No.", "code": 400}', {"message": "No.", "code": 400}),
        (b'{"detail": "No."}', {"message": "No."}),
        (b"No.", {"message": "No."}),
        (b'{"error": {"message": "No.", "code": ""}}', {"message": "No."}),
        (b'{"error": 7}', {}),
        (b"[]", {}),
        (b"<html>", {}),
        (b"\xff", {}),
        (b"[" * 50_000, {}),
        (b"", {}),
        (b'{"error": "' + b"x" * 100_000 + b'"}', {}),
    ],
)  # fmt: skip
async def test_error_details_are_read_from_every_known_body_shape(body: bytes, error: dict[str, Any]) -> None:
    async with open_upstream(ScriptedUpstream([Status(400, body)])) as model:
        with pytest.raises(ModelRefused) as caught:
            await model.complete(REQUEST)
    assert caught.value.error == error


async def test_completion_beyond_the_byte_limit_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_answer, "ANSWER_BYTES", 20)
    async with open_upstream(
        ScriptedUpstream([Data(b'"%b"' % (b"x" * 18))], [Data(b'"%b"' % (b"x" * 19))])
    ) as model:
        assert len(await model.complete(REQUEST)) == 20
        with pytest.raises(MalformedAnswer, match="more than 20 bytes"):
            await model.complete(REQUEST)


async def test_completion_not_read_to_its_end_releases_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamed_answer, "ANSWER_BYTES", 20)
    more = Status(200, b"x" * 21, {"Content-Length": "99"})
    async with open_upstream(ScriptedUpstream([more], ["ok"])) as model:
        with pytest.raises(MalformedAnswer):
            await model.complete(REQUEST)
        while model._connections.pool()._open:
            await asyncio.sleep(0)


@pytest.mark.parametrize("chunked", [True, False])
async def test_completion_without_a_length_ends_with_its_connection(chunked: bool) -> None:
    head = Head("application/json", chunked=chunked)
    async with open_upstream(ScriptedUpstream([head, "Hi"])) as model:
        assert b'"Hi"' in await model.complete(REQUEST)


async def test_completion_cut_by_the_end_of_its_connection_is_malformed() -> None:
    head = Head("application/json", chunked=False)
    async with open_upstream(ScriptedUpstream([head, Data(b'{"choices": [')])) as model:
        with pytest.raises(MalformedAnswer):
            await model.complete(REQUEST)


async def test_error_body_in_pieces_is_read_whole() -> None:
    body = b'{"error": {"message": "' + b"x" * 50_000 + b'"}}'
    async with open_upstream(ScriptedUpstream([Status(400, body)])) as model:
        with pytest.raises(ModelRefused) as caught:
            await model.complete(REQUEST)
    assert caught.value.error == {"message": "x" * (MESSAGE_LENGTH - 1) + "…"}


async def test_error_body_that_does_not_end_is_reported_by_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamed_answer, "ERROR_SECONDS", 0.01)
    async with open_upstream(
        ScriptedUpstream([Status(400, b'{"error": "No', {"Content-Length": "99"})])
    ) as model:
        with pytest.raises(ModelRefused) as caught:
            await model.complete(REQUEST)
    assert (caught.value.status, caught.value.error) == (400, {})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("header", "is_refused"),
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
async def test_answer_with_an_encoding_other_than_gzip_is_malformed(
    header: bytes, is_refused: bool, stream: bool
) -> None:
    received: list[bytes] = []

    async def behave(connection: ServerConnection) -> None:
        received.append(await connection.request())
        body = b"{}" if b"Length" in header else b"2\r\n{}\r\n0\r\n\r\n"
        await connection.send(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (header, body))

    async with run_raw_server(behave) as port, upstream(f"http://127.0.0.1:{port}") as model:
        with pytest.raises(MalformedAnswer, match="compressed") if is_refused else nullcontext():
            await (payloads(model) if stream else model.complete(REQUEST))
    assert len(received) == 1
    assert b"\r\nAccept-Encoding: gzip\r\n" in received[0]


async def test_connection_is_reused_after_every_kind_of_answer() -> None:
    scripted = ScriptedUpstream(["a"], ["b"], [Status(400)], ["c"], [Head(), "d", End(done=False)], ["e"])
    async with open_upstream(scripted) as model:
        for _ in range(2):
            await payloads(model)
        with pytest.raises(ModelRefused):
            await model.complete(REQUEST)
        await model.complete(REQUEST)
        await payloads(model)
        await payloads(model)
        await model.models()
    assert scripted.connections == 1


async def test_connection_left_open_behind_the_done_mark_does_not_delay_the_turn(chat: Chat) -> None:
    finish = Data(b'{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}')
    scripted = ScriptedUpstream(["Hi", finish, Data(b"[DONE]"), Gate()], ["Again"])
    async with open_upstream(scripted, lingers=0.0) as model:
        assert (await chat.run(ChatRunner(model, {}), "Hi")).text == "Hi"
        assert (await chat.run(ChatRunner(model, {}), "Hi")).text == "Again"
    assert scripted.connections == 2


async def test_connection_that_ends_soon_behind_the_done_mark_is_reused() -> None:
    gate = Gate()
    answer = b'data: {"choices": []}\n\ndata: [DONE]\n\n'
    scripted = ScriptedUpstream([answer, gate, End(None, done=False)], ["Again"])
    async with open_upstream(scripted, lingers=60.0) as model:
        async with model.stream(REQUEST) as batches:
            assert await anext(batches) == [b'{"choices": []}']
            ending = asyncio.create_task(anext(batches, None))
            await gate.arrived()
            assert not ending.done()
            gate.release()
            assert await ending is None
        await payloads(model)
    assert scripted.connections == 1


async def test_events_behind_the_done_mark_are_ignored() -> None:
    async with open_upstream(ScriptedUpstream(["Hi", Data(b"[DONE]"), "more", "more"])) as model:
        assert text_of(await payloads(model)) == "Hi"


async def test_stream_without_chunks_ends_at_the_done_mark() -> None:
    async with open_upstream(ScriptedUpstream([Head(chunked=False), "Hi"])) as model:
        assert text_of(await payloads(model)) == "Hi"


async def test_done_mark_without_its_blank_line_ends_the_stream() -> None:
    async with open_upstream(ScriptedUpstream([Head(chunked=False), "Hi", b"data: [DONE]", CUT])) as model:
        assert text_of(await payloads(model)) == "Hi"


async def test_stream_left_early_releases_its_connection() -> None:
    scripted = ScriptedUpstream(["a", Gate()], ["b"])
    async with open_upstream(scripted) as model:
        async with model.stream(REQUEST) as batches:
            async for _ in batches:
                break
        assert text_of(await payloads(model)) == "b"
    assert scripted.connections == 2
