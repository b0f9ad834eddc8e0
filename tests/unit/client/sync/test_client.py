"""The blocking client on scripted answers and on a real socket."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.unit.client.loopback import loopback
from tests.unit.client.script import (
    CHAT,
    CUT,
    TURN,
    UNREACHED,
    WHOLE,
    error_reply,
    event_stream,
    reply,
    turn_finished,
    turn_started,
    turn_stream,
)
from tests.unit.client.scripted_transport import AT, ScriptedTransport
from turnledger import errors
from turnledger.client import Client, Retries, Stream, Timeouts, TurnStream
from turnledger.client.core.steps import Emit, Steps


def client_of(served: ScriptedTransport, **options: Any) -> Client:
    return Client(AT, "tlt_x", http=served.http, **{**served.options, **options})


def test_turn_stream_yields_events_and_closes_its_response() -> None:
    served = ScriptedTransport(turn_stream(*WHOLE))
    chat = client_of(served).chats.open(CHAT)
    stream = chat.send("Hi", stream=True)
    assert isinstance(stream, TurnStream)
    assert (stream.turn_id, stream.text) == (TURN, "")
    assert [event.number for event in stream] == [1, 2, 3]  # type: ignore[union-attr]
    assert stream.text == "Hello"
    assert served.bodies[0].is_closed
    assert served.received[0].headers["authorization"] == "Bearer tlt_x"


def test_send_raises_the_error_of_a_refused_request() -> None:
    served = ScriptedTransport(error_reply(409, "conversation_busy"))
    with pytest.raises(errors.ConversationBusy) as raised:
        client_of(served).chats.open(CHAT).send("Hi", stream=True)
    assert (raised.value.status, raised.value.request_id) == (409, "req_1")


def test_turn_stream_raises_a_failure_after_the_last_event() -> None:
    served = ScriptedTransport(turn_stream(turn_started(), turn_finished(2, "failed", "model_timeout")))
    stream = client_of(served).chats.open(CHAT).send("Hi", stream=True)
    received = []
    with pytest.raises(errors.ModelTimeout):
        received += [event for event in stream]  # noqa: C416 - it raises
    with pytest.raises(StopIteration):
        next(stream)
    failing = ScriptedTransport(turn_stream(turn_started(), turn_finished(2, "failed", "model_timeout")))
    stream_of_failure = client_of(failing).chats.open(CHAT).send("Hi", stream=True)
    assert [next(stream_of_failure).number for _ in range(2)] == [1, 2]  # type: ignore[union-attr]


def test_turn_stream_context_exit_closes_the_connection() -> None:
    served = ScriptedTransport(turn_stream(*WHOLE))
    with client_of(served).chats.open(CHAT).send("Hi", stream=True) as stream:
        next(stream)
    assert served.bodies[0].is_closed
    assert list(stream) == []
    with pytest.raises(errors.RequestFailed, match="closed before the turn ended"):
        stream.answer()


def test_turn_stream_interrupted_while_waiting_closes_its_response() -> None:
    class Interrupted(BaseException):
        pass

    served = ScriptedTransport(turn_stream(*WHOLE[:1], end=CUT), event_stream(*WHOLE[1:]))

    def interrupt(_: float) -> None:
        raise Interrupted

    stream = (
        client_of(served, pacing=type(served.pacing)(sleep=interrupt))
        .chats.open(CHAT)
        .send("Hi", stream=True)
    )
    with pytest.raises(Interrupted):
        list(stream)
    assert served.bodies[0].is_closed
    assert list(stream) == []


def test_closed_client_sends_no_requests() -> None:
    served = ScriptedTransport(turn_stream(*WHOLE))
    with client_of(served) as client:
        stream = client.chats.open(CHAT).send("Hi", stream=True)
    for late in (lambda: list(stream), client.models):
        with pytest.raises(errors.RequestFailed) as raised:
            late()
        assert raised.value.code == "client_closed"
    assert len(served.received) == 1


def test_client_close_ends_a_waiting_retry() -> None:
    served = ScriptedTransport(UNREACHED, UNREACHED)
    waits = threading.Event()

    def noting(request: httpx2.Request) -> None:
        waits.set()

    served.http.event_hooks = {"request": [noting]}
    client = Client(
        AT, http=served.http, model="demo", retries=Retries(first_pause=3600, max_pause=3600, patience=9999)
    )
    outcome: list[BaseException] = []

    def send() -> None:
        try:
            client.chats.open(CHAT).send("Hi")
        except errors.TurnledgerError as problem:
            outcome.append(problem)

    thread = threading.Thread(target=send)
    thread.start()
    waits.wait(30)
    client.close()
    thread.join(30)
    assert [type(problem) for problem in outcome] == [errors.RequestFailed]


def test_client_closed_during_a_request_raises_client_closed() -> None:
    served = ScriptedTransport(reply({"data": []}), reply({"data": []}))
    client = Client(AT, model="demo")
    client._wire._http = served.http

    def close(_: httpx2.Request) -> None:
        client.close()
        raise RuntimeError("Cannot send a request, as the client has been closed.")

    served.http.event_hooks = {"request": [close]}
    with pytest.raises(errors.RequestFailed) as raised:
        client.models()
    assert raised.value.code == "client_closed"
    served.http.event_hooks = {"request": []}


def test_client_close_leaves_a_given_http_client_open() -> None:
    served = ScriptedTransport()
    client_of(served).close()
    assert not served.http.is_closed


@pytest.mark.parametrize(
    "address",
    ["", "server.test", "ftp://server.test", "http://", "http://u:p@server.test", "http://server.test/?a=1"],
)
def test_invalid_base_url_is_refused(address: str) -> None:
    with pytest.raises(errors.InvalidInput, match="base_url"):
        Client(address)


@pytest.mark.parametrize("api_key", ["", " ", "a\nb", "clé", "a b"])
def test_invalid_api_key_is_refused_without_its_text(api_key: str) -> None:
    with pytest.raises(errors.InvalidInput, match="copied completely"):
        Client(AT, api_key)


def test_client_repr_hides_its_api_key() -> None:
    assert "tlt_x" not in repr(client_of(ScriptedTransport()))


def test_timeouts_are_passed_to_every_request() -> None:
    served = ScriptedTransport(reply({"data": []}))
    client_of(served, timeouts=Timeouts(connect=1, silence=2, write=3)).models()
    timeout = served.received[0].extensions["timeout"]
    assert (timeout["connect"], timeout["read"], timeout["write"]) == (1, 2, 3)


def test_search_of_deleted_chats_is_refused() -> None:
    with pytest.raises(errors.InvalidInput):
        client_of(ScriptedTransport()).chats.list(q="x", deleted=True)


WAIT = 30


def test_connection_is_reused_for_consecutive_streams() -> None:
    with loopback(*WHOLE) as server, Client(server.url, model="demo") as client:
        for _ in range(5):
            assert len(list(client.chats.open(CHAT).send("Hi", stream=True))) == 3
        assert server.connections == 1


def test_turn_stream_that_is_abandoned_closes_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server, Client(server.url, model="demo") as client:
        for _ in client.chats.open(CHAT).send("Hi", stream=True):
            break
        assert server.left.wait(WAIT)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda client, stream: stream.close(), None),
        (lambda client, stream: client.close(), errors.RequestFailed),
    ],
    ids=["stream", "client"],
)
def test_reader_ends_when_stream_or_client_is_closed_elsewhere(
    end: Callable[[Client, TurnStream], None], kind: type[Exception] | None
) -> None:
    with loopback(*WHOLE[:2], holds=True) as server, Client(server.url, model="demo") as client:
        stream = client.chats.open(CHAT).send("Hi", stream=True)
        received: list[Any] = []
        has_received = threading.Event()

        def read() -> None:
            try:
                for event in stream:
                    received.append(event.number)  # type: ignore[union-attr]
                    if len(received) == 2:
                        has_received.set()
                received.append("over")
            except errors.TurnledgerError as problem:
                received.append(type(problem))

        event_stream = threading.Thread(target=read)
        event_stream.start()
        assert has_received.wait(WAIT)
        end(client, stream)
        event_stream.join(WAIT)
        assert received == [1, 2, kind or "over"]
        assert server.left.wait(WAIT)


def test_turn_stream_that_is_dropped_unread_closes_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server, Client(server.url, model="demo") as client:
        client.chats.open(CHAT).send("Hi", stream=True)
        assert server.left.wait(WAIT)
        client.chats.open(CHAT).send("Hi", stream=True).close()
        assert not client._wire._http._transport._pool.connections  # type: ignore[attr-defined]


def test_stream_closed_while_another_thread_computes_the_next_event_ends() -> None:
    decides, is_closed = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        yield Emit((1,))
        decides.set()
        assert is_closed.wait(WAIT)
        yield Emit((2,))

    with Client("http://127.0.0.1:9") as client, ThreadPoolExecutor(1) as pool:
        stream = Stream[int](client._wire, steps())
        event_stream = pool.submit(list, stream)
        assert decides.wait(WAIT)
        stream.close()
        is_closed.set()
        assert event_stream.result(WAIT) == []


def test_stream_closed_before_a_received_event_is_taken_ends() -> None:
    class Emptied(deque[int]):
        """Closed by another thread between the look and the taking."""

        def __bool__(self) -> bool:
            is_full = len(self) > 0
            if is_full:
                stream.close()
            return is_full

    with Client("http://127.0.0.1:9") as client:
        stream = Stream[int](client._wire, iter_of(Emit((1, 2))))
        stream._pieces = Emptied()
        assert list(stream) == []


def test_stream_read_by_several_threads_yields_each_event_once() -> None:
    with Client("http://127.0.0.1:9") as client, ThreadPoolExecutor(4) as pool:
        stream = Stream[int](client._wire, iter_of(*(Emit((number,)) for number in range(2000))))
        received = [
            each
            for event_stream in [pool.submit(list, stream) for _ in range(4)]
            for each in event_stream.result(WAIT)
        ]
        assert sorted(received) == list(range(2000))


def iter_of(*steps: Emit) -> Steps[None]:
    yield from steps
