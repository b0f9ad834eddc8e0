"""Upstream requests, retries and timeouts; no failure changes the history."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.unit.runners.conftest import Waits
from tests.unit.runners.http.raw_server import (
    Behaviour,
    ServerConnection,
    answer_once,
    answer_with,
    run_raw_server,
)
from tests.unit.runners.upstream_requests import REQUEST, open_upstream, payloads, text_of, upstream
from turnledger import Chat
from turnledger.errors import (
    InvalidInput,
    MalformedAnswer,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
)
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.http import connection
from turnledger.runners.upstream import streamed_answer
from turnledger.runners.upstream.failures import UpstreamFailure
from turnledger.runners.upstream.upstream import Retries, Timeouts, Upstream
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Call, Data, End, Head, Refusal, ScriptedUpstream, Status, Step

NEVER = Retries(limit=0)
HASTY = Timeouts(first_byte=0.01, between_chunks=0.01)
BEGINS = Timeouts(first_byte=60.0, between_chunks=0.01)


class Fault(NamedTuple):
    script: Callable[[], Sequence[Step]]
    error: type[ModelError]
    timeouts: Timeouts = Timeouts()
    shown: str = ""
    """What the client has seen of it before."""


STREAMED = {
    "status": Fault(lambda: [Status(500)], ModelUnavailable),
    "status about the request": Fault(lambda: [Status(422)], ModelRefused),
    "redirect": Fault(lambda: [Status(307, headers={"Location": "/v1/models"})], ModelUnavailable),
    "cut before the status": Fault(lambda: [CUT], ModelUnavailable),
    "hang before the status": Fault(lambda: [Gate()], ModelTimeout, HASTY),
    "no HTTP": Fault(lambda: [Status(200, headers={"Bad\nheader": "x"})], MalformedAnswer),
    "another content type": Fault(lambda: [Head("text/html"), b"<p>Hello</p>"], MalformedAnswer),
    "an answer that is no stream": Fault(lambda: [Status(200, b'{"choices": []}')], MalformedAnswer),
    "an error that is no stream": Fault(lambda: [Status(200)], ModelUnavailable),
    "cut before the first token": Fault(lambda: [Head(), CUT], ModelUnavailable),
    "hang before the first token": Fault(lambda: [Head(), Gate()], ModelTimeout, HASTY),
    "cut mid-stream": Fault(lambda: ["Hel", CUT], ModelUnavailable, shown="Hel"),
    "cut mid-chunk": Fault(lambda: ["Hel", b'data: {"choi', CUT], ModelUnavailable, shown="Hel"),
    "cut without a mark": Fault(
        lambda: [Head(chunked=False), "Hel", End("stop", done=False)], ModelUnavailable, shown="Hel"
    ),
    "stall mid-stream": Fault(lambda: ["Hel", Gate()], ModelTimeout, BEGINS, shown="Hel"),
    "error object in the stream": Fault(
        lambda: ["Hel", Data(b'{"error": {"message": "Overloaded"}}')], ModelUnavailable, shown="Hel"
    ),
    "end without any mark": Fault(lambda: ["Hel", End(None, done=False)], MalformedAnswer, shown="Hel"),
    "too long": Fault(lambda: ["Hel", b"data: " + b"x" * (17 * 1024 * 1024)], MalformedAnswer, shown="Hel"),
}
WHOLE = {
    "status": Fault(lambda: [Status(503)], ModelUnavailable),
    "hang before the status": Fault(lambda: [Gate()], ModelTimeout, HASTY),
    "cut": Fault(lambda: ["Hel", CUT], ModelUnavailable),
    "error object": Fault(lambda: [Data(b'{"error": "no"}')], ModelUnavailable),
    "too long": Fault(lambda: [Data(b"x" * (17 * 1024 * 1024))], MalformedAnswer),
}


@pytest.mark.parametrize("point", STREAMED)
async def test_stream_that_fails_at_any_point_leaves_the_history_unchanged(chat: Chat, point: str) -> None:
    fault, shown = STREAMED[point], list[bytes]()
    scripted = ScriptedUpstream(["One."], fault.script(), ["Two."])
    async with (
        open_upstream(scripted, timeouts=fault.timeouts, retries=NEVER) as model,
        upstream(scripted.url) as patient,
    ):
        before = await chat.run(ChatRunner(patient, {}), "a")
        run = ChatRunner(model, {}, on_payloads=shown.extend)
        with pytest.raises(fault.error) as caught:
            await chat.run(run, "b")
        assert type(caught.value) is fault.error
        assert text_of(shown) == fault.shown
        assert await chat.turns() == [before]
        after = await chat.run(ChatRunner(patient, {}), "b")
        assert [turn.text for turn in await chat.turns()] == ["One.", "Two."]
        assert after.parent == before.id
    contents = [[each["content"] for each in request.body["messages"]] for request in scripted.received]
    assert contents == [["a"], ["a", "One.", "b"], ["a", "One.", "b"]]


@pytest.mark.parametrize("point", WHOLE)
async def test_completion_that_fails_at_any_point_leaves_the_history_unchanged(
    chat: Chat, point: str
) -> None:
    fault = WHOLE[point]
    async with open_upstream(
        ScriptedUpstream(fault.script()), timeouts=fault.timeouts, retries=NEVER
    ) as model:
        with pytest.raises(fault.error) as caught:
            await chat.run(ChatRunner(model, {}, stream=False), "Hi")
    assert type(caught.value) is fault.error
    assert await chat.history() == []


@pytest.mark.parametrize("stream", [True, False])
async def test_upstream_that_cannot_be_reached_leaves_the_history_unchanged(
    chat: Chat, waits: Waits, stream: bool
) -> None:
    scripted = ScriptedUpstream()
    async with open_upstream(scripted, sleep=waits) as model:
        await scripted.refuse()
        with pytest.raises(ModelUnavailable, match="cannot be reached"):
            await chat.run(ChatRunner(model, {}, stream=stream), "Hi")
    assert len(waits) == 2
    assert await chat.history() == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("split", [None, 1, 7])
async def test_answer_streamed_or_not_in_any_split_becomes_the_same_turn(
    chat: Chat, stream: bool, split: int | None
) -> None:
    script = ["Hällo ", "wörld", Call("look", '{"at": "Zürich"}'), Call("see", "{}", "call_1", 1)]
    async with open_upstream(ScriptedUpstream(script, split=split)) as model:
        turn = await chat.run(ChatRunner(model, {}, stream=stream), "Hi")
    assert turn.text == "Hällo wörld"
    assert [item.fields["arguments"] for item in turn.output[1:]] == ['{"at": "Zürich"}', "{}"]
    assert turn.details["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [True, False])
async def test_refusal_of_the_model_is_stored_as_a_turn(chat: Chat, stream: bool) -> None:
    async with open_upstream(ScriptedUpstream([Refusal("No.")])) as model:
        turn = await chat.run(ChatRunner(model, {}, stream=stream), "Hi")
    assert turn.output[0].fields["content"] == [{"type": "refusal", "refusal": "No."}]


async def test_unknown_fields_are_passed_on_in_requests_and_answers() -> None:
    odd = b'{"x_new": {"a": 1},  "choices": []}'
    scripted = ScriptedUpstream([Data(odd)], [Data(odd)])
    async with open_upstream(scripted) as model:
        assert odd in await payloads(model)
        assert await model.complete(REQUEST) == odd
    assert [request.body["x_unknown"] for request in scripted.received] == [[1], [1]]
    assert [request.body["stream"] for request in scripted.received] == [True, False]


async def test_usage_is_stored_only_when_requested(chat: Chat) -> None:
    async with open_upstream(ScriptedUpstream(["Hi"], ["Hi"])) as model:
        turn = await chat.run(ChatRunner(model, {}, stream_options={"include_usage": True}), "Hi")
        assert turn.details["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        assert "usage" not in (await chat.run(ChatRunner(model, {}), "Hi")).details


@pytest.mark.parametrize("api_key", [None, "sk-secret"])
async def test_upstream_sends_the_given_api_key_and_hides_it_in_its_repr(api_key: str | None) -> None:
    scripted = ScriptedUpstream(["Hi"])
    async with open_upstream(scripted, api_key=api_key) as model:
        await payloads(model)
        assert "sk-secret" not in repr(model)
    expected = f"Bearer {api_key}" if api_key else None
    assert scripted.received[0].headers.get("authorization") == expected
    assert scripted.received[0].headers["content-type"] == "application/json"


async def test_upstream_does_not_send_cookies_back() -> None:
    scripted = ScriptedUpstream([Status(400, headers={"Set-Cookie": "a=b"})], ["Hi"])
    async with open_upstream(scripted) as model:
        with pytest.raises(ModelRefused):
            await payloads(model)
        await payloads(model)
    assert "cookie" not in scripted.received[1].headers


async def test_request_without_an_answer_is_retried_with_growing_waits(waits: Waits) -> None:
    scripted = ScriptedUpstream([Status(503)], [CUT], ["Hi"])
    async with open_upstream(scripted, sleep=waits, chance=lambda: 1.0) as model:
        assert text_of(await payloads(model)) == "Hi"
    assert waits == [0.25, 0.5]
    assert len({str(request.body) for request in scripted.received}) == 1


async def test_retry_reaches_a_server_that_listens_again(chat: Chat) -> None:
    scripted = ScriptedUpstream(["Hi"])

    async def come_back(_: float) -> None:
        await scripted.listen()

    async with open_upstream(scripted, sleep=come_back) as model:
        await scripted.refuse()
        assert (await chat.run(ChatRunner(model, {}), "Hi")).text == "Hi"


async def test_retries_stop_at_their_limit(waits: Waits) -> None:
    scripted = ScriptedUpstream(otherwise=[Status(502)])
    async with open_upstream(scripted, sleep=waits, retries=Retries(limit=3)) as model:
        with pytest.raises(ModelUnavailable, match="status 502"):
            await model.complete(REQUEST)
    assert (len(scripted.received), len(waits)) == (4, 3)


@pytest.mark.parametrize(
    "script",
    [
        lambda: [Status(400)],
        lambda: [Status(401)],
        lambda: [Status(500)],
        lambda: [Status(429, headers={"retry-after": "60"})],
        lambda: [Status(503, headers={"x-should-retry": "false"})],
        lambda: [Head(), CUT],
        lambda: ["Hel", CUT],
    ],
)
async def test_answered_or_begun_request_is_not_retried(
    script: Callable[[], list[Step]], waits: Waits
) -> None:
    scripted = ScriptedUpstream(script(), ["not asked for"])
    async with open_upstream(scripted, sleep=waits) as model:
        with pytest.raises(ModelError):
            await payloads(model)
    assert (len(scripted.received), waits) == (1, [])


async def test_retry_waits_as_long_as_the_upstream_requests(waits: Waits) -> None:
    scripted = ScriptedUpstream(
        [Status(429, headers={"retry-after": "1.5"})], [Status(429, headers={"retry-after-ms": "30"})], ["Hi"]
    )
    async with open_upstream(scripted, sleep=waits) as model:
        await payloads(model)
    assert waits == [1.5, 0.03]


async def test_retry_after_beyond_the_limit_is_raised_with_the_refusal(waits: Waits) -> None:
    async with open_upstream(
        ScriptedUpstream([Status(429, headers={"retry-after": "60"})]), sleep=waits
    ) as model:
        with pytest.raises(ModelRefused) as caught:
            await payloads(model)
    assert (caught.value.status, caught.value.retry_after) == (429, 60.0)
    assert caught.value.error["code"] == "scripted"


async def test_refusal_about_the_api_key_does_not_repeat_the_upstreams_message() -> None:
    body = b'{"error": {"message": "Incorrect API key: sk-secret"}}'
    async with open_upstream(ScriptedUpstream([Status(401, body)])) as model:
        with pytest.raises(ModelUnavailable) as caught:
            await payloads(model)
    assert "sk-secret" not in str(caught.value)


async def test_error_after_retries_forbids_those_of_the_caller(waits: Waits) -> None:
    scripted = ScriptedUpstream(otherwise=[Status(503)])
    async with open_upstream(scripted, sleep=waits) as model:
        for view, should_retry in ((model, False), (model.for_client(retries=False), True)):
            with pytest.raises(ModelUnavailable) as caught:
                await payloads(view)
            assert caught.value.should_retry is should_retry
    assert (len(scripted.received), len(waits), scripted.connections) == (4, 2, 1)


async def test_connect_beyond_its_timeout_is_retried_and_raises_model_timeout(waits: Waits) -> None:
    async with open_upstream(ScriptedUpstream(), timeouts=Timeouts(connect=1e-9), sleep=waits) as model:
        with pytest.raises(ModelTimeout, match="reached in time"):
            await payloads(model)
    assert len(waits) == 2


async def test_total_timeout_ends_a_stalled_stream() -> None:
    gate = Gate()
    async with open_upstream(ScriptedUpstream(["Hel", gate]), timeouts=Timeouts(total=0.05)) as model:
        with pytest.raises(ModelTimeout):
            await payloads(model)


async def test_upstream_without_timeouts_streams_an_answer() -> None:
    timeouts = Timeouts(None, None, None, None)
    async with open_upstream(ScriptedUpstream(["Hi"]), timeouts=timeouts) as model:
        assert text_of(await payloads(model)) == "Hi"


async def test_upstream_lists_its_models() -> None:
    async with open_upstream(ScriptedUpstream()) as model:
        assert [each["id"] for each in await model.models()] == ["scripted"]


async def test_query_of_the_upstream_url_is_sent_with_requests() -> None:
    scripted = ScriptedUpstream(["Hi"])
    async with scripted, upstream(f"{scripted.url}/?api-version=1") as model:
        await payloads(model)
    assert scripted.received[0].path == "/v1/chat/completions?api-version=1"


@pytest.mark.parametrize("is_used", [True, False])
async def test_closed_upstream_raises_model_unavailable(is_used: bool) -> None:
    async with open_upstream(ScriptedUpstream(["Hi"])) as model:
        if is_used:
            await payloads(model)
        await model.close()
        with pytest.raises(ModelUnavailable, match="closed"):
            await payloads(model)


@pytest.mark.parametrize("idle", [0.0, 1e9])
async def test_stale_connection_closed_by_the_server_is_replaced_without_counting_as_a_retry(
    idle: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server closed it while we wrote: that is no failed try."""
    monkeypatch.setattr(connection, "STALE_AFTER", idle)
    scripted = ScriptedUpstream(["One"], [CUT], ["Two"], [CUT], [CUT], ["not asked for"])
    async with open_upstream(scripted, retries=NEVER) as model:
        await payloads(model)
        if idle:  # it was just used
            with pytest.raises(ModelUnavailable, match="broke"):
                await payloads(model)
            assert len(scripted.received) == 2
            return
        assert text_of(await payloads(model)) == "Two"
        assert scripted.connections == 2
        with pytest.raises(ModelUnavailable, match="broke"):  # a new one that is closed is a failure
            await payloads(model)
        assert len(scripted.received) == 5


async def test_error_answer_on_a_stale_connection_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALE_AFTER", 0.0)
    scripted = ScriptedUpstream(["One"], [Status(503)], ["not asked for"])
    async with open_upstream(scripted, retries=NEVER) as model:
        await payloads(model)
        with pytest.raises(ModelUnavailable, match="503"):
            await payloads(model)
    assert len(scripted.received) == 2


@pytest.mark.parametrize("script", [lambda gate: [gate], lambda gate: [Head(), gate]])
@pytest.mark.parametrize("stream", [True, False])
async def test_cancelled_request_releases_its_connection(
    stream: bool, script: Callable[[Gate], Sequence[Step]]
) -> None:
    gate = Gate()
    async with open_upstream(ScriptedUpstream(script(gate))) as model:
        pending = asyncio.ensure_future(payloads(model) if stream else model.complete(REQUEST))
        await gate.arrived()
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        while model._connections.pool()._open:
            await asyncio.sleep(0)
        assert model._connections.pool().take() is None


async def test_upstream_opens_at_most_the_configured_connections() -> None:
    gates = [Gate() for _ in range(6)]
    scripted = ScriptedUpstream(*([gate, "Hi"] for gate in gates))
    async with open_upstream(scripted, connections=2) as model:
        pending = [asyncio.create_task(payloads(model)) for _ in gates]
        await gates[0].arrived()
        await gates[1].arrived()
        for gate in gates:
            gate.release()
        assert [text_of(each) for each in await asyncio.gather(*pending)] == ["Hi"] * 6
    assert scripted.connections == 2


@pytest.mark.parametrize(
    ("url", "api_key"),
    [
        ("ftp://localhost/v1", None),
        ("http://me:secret@localhost/v1", None),
        ("http://localhost/v1", "sk-secret\r\nX-Injected: 1"),
    ],
)
def test_upstream_with_an_invalid_url_or_api_key_is_refused_without_repeating_it(
    url: str, api_key: str | None
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Upstream(url, api_key)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
@pytest.mark.parametrize("phase", ["connect", "first_byte", "between_chunks", "total"])
def test_timeout_that_is_not_positive_is_refused(phase: str, seconds: float) -> None:
    with pytest.raises(InvalidInput, match=phase):
        Timeouts(**{phase: seconds})


def test_retry_waits_grow_up_to_a_limit_and_vary_by_chance() -> None:
    retries, broken = Retries(limit=9), UpstreamFailure(ModelUnavailable(), may_retry=True)
    assert [retries.wait(tries, broken, 1.0) for tries in (1, 2, 3, 4, 5, 10)] == [
        0.25,
        0.5,
        1.0,
        2.0,
        2.0,
        None,
    ]
    assert retries.wait(1, broken, 0.0) == 0.125


HEAD = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PAYLOADS = [b'{"a": %d}' % number for number in range(5)]
BOMB = 48 * 1024 * 1024


def streamed(*, done: bool = True) -> bytes:
    """Five events, each flushed by itself."""
    packer = zlib.compressobj(wbits=31)
    packed = b""
    for event in [*PAYLOADS, b"[DONE]"] if done else PAYLOADS:
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


async def test_gzip_completion_is_decoded_and_its_connection_reused() -> None:
    counted: list[int] = []

    async def behave(connection: ServerConnection) -> None:
        counted.append(connection.number)
        await answer_with(whole(gzip.compress(b'{"choices": []}')))(connection)

    async with run_raw_server(behave) as port, upstream(f"http://127.0.0.1:{port}") as model:
        for _ in range(2):
            assert await model.complete(REQUEST) == b'{"choices": []}'
    assert counted == [0]


async def test_gzip_error_body_is_decoded() -> None:
    body = gzip.compress(b'{"error": {"message": "No."}}')
    async with (
        run_raw_server(answer_with(whole(body, b"400 Bad"))) as port,
        upstream(f"http://127.0.0.1:{port}") as model,
    ):
        with pytest.raises(ModelRefused) as caught:
            await model.complete(REQUEST)
    assert caught.value.error == {"message": "No."}


async def test_gzip_stream_yields_an_event_before_the_next_one_arrives() -> None:
    goes_on = asyncio.Event()
    packer = zlib.compressobj(wbits=31)
    first, rest = (
        packer.compress(b"data: %b\n\n" % each) + packer.flush(zlib.Z_SYNC_FLUSH)
        for each in (b"1", b"[DONE]")
    )

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED, chunk(first))
        await goes_on.wait()
        await connection.send(chunk(rest + packer.flush()), b"0\r\n\r\n")

    async with (
        run_raw_server(behave) as port,
        upstream(f"http://127.0.0.1:{port}") as model,
        model.stream(REQUEST) as batches,
    ):
        assert await anext(aiter(batches)) == [b"1"]
        goes_on.set()
        assert [batch async for batch in batches] == []


@pytest.mark.parametrize("is_marked", [True, False], ids=["chunked", "until it closes"])
async def test_gzip_stream_cut_anywhere_raises(is_marked: bool) -> None:
    packed = streamed(done=False)
    ends = iter(range(len(packed)))

    def cut() -> bytes:
        piece = packed[: next(ends)]
        return CHUNKED + chunk(piece) + b"0\r\n\r\n" if is_marked else HEAD + b"\r\n" + piece

    async def behave(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(cut())

    async with (
        run_raw_server(behave) as port,
        upstream(f"http://127.0.0.1:{port}", retries=NEVER, reuse=False) as model,
    ):
        for _ in packed:
            received: list[bytes] = []
            with pytest.raises((ModelUnavailable, MalformedAnswer)):
                async with model.stream(REQUEST) as batches:
                    async for batch in batches:
                        received += batch
            assert received == PAYLOADS[: len(received)]


def answering(body: bytes) -> Behaviour:
    return answer_once(CHUNKED, chunk(body), b"0\r\n\r\n")


async def test_gzip_completion_that_decodes_to_gigabytes_is_malformed_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamed_answer, "ANSWER_BYTES", 1024 * 1024)
    body = bomb(b'"')
    async with run_raw_server(answering(body)) as port, upstream(f"http://127.0.0.1:{port}") as model:
        with in_memory(8 * 1024 * 1024), pytest.raises(MalformedAnswer, match="more than 1048576 bytes"):
            await model.complete(REQUEST)


async def test_gzip_stream_that_decodes_to_gigabytes_is_malformed_without_blocking_the_loop() -> None:
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    body = bomb(b": ping\n\n" * 1000 + b"data: ")
    async with run_raw_server(answering(body)) as port, upstream(f"http://127.0.0.1:{port}") as model:
        counting = asyncio.create_task(count())
        with in_memory(40 * 1024 * 1024), pytest.raises(MalformedAnswer, match="more than 16777216 bytes"):
            await payloads(model)
        counting.cancel()
    assert steps >= 60
