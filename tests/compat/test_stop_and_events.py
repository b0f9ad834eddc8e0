"""Stopping a turn, following its events, waiting in its queue, and disconnecting from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from openai import OpenAI, Stream
from openai.types.chat import ChatCompletionChunk

from tests.compat.completions import Way, assistant, both_ways, collect, send_streamed, send_whole, user
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, PATIENCE, LiveServer
from tests.compat.retry_clients import MOMENT
from turnledger.testing.gates import Gate

UNKNOWN = "turn_01a1e0bc39367804ba97aa83b3fdbca9"


def running_turn(served: LiveServer, conversation_key: str) -> str:
    [attempt] = [
        each for each in served.chat_json(conversation_key)["attempts"] if each["state"] == "running"
    ]
    return str(attempt["id"])


class TestStop:
    @both_ways
    @pytest.mark.parametrize("policy", [None, "keep", "discard"])
    def test_stop_is_answered_when_the_turn_is_final(
        self, serve: Serve, store_url: str, threads: ThreadPoolExecutor, way: Way, policy: str | None
    ) -> None:
        gate = Gate()
        served = serve(["One."], ["Hel", gate], ["Three."], store=store_url)
        client = served.client("k")
        way(client, "first")
        before = served.turns("k")
        pending = threads.submit(way, client, "second")
        served.wait_arrived(gate)
        body = {} if policy is None else {"policy": policy}
        ended = served.http.post(f"/api/turns/{running_turn(served, 'k')}/stop", json=body).json()
        is_kept = policy != "discard"
        assert (ended["state"], ended["committed"]) == ("kept" if is_kept else "discarded", is_kept)
        problem = pending.exception()
        assert isinstance(problem, openai.APIError)
        assert isinstance(problem, openai.ConflictError) is (way is send_whole)
        assert problem.code == "turn_stopped"
        if not is_kept:
            assert served.turns("k") == before
        way(client, "third")
        # An unstreamed answer is sent when complete: the client received nothing before the stop.
        partial = [assistant("Hel")] if way is send_streamed else []
        kept = [user("second"), *partial] if is_kept else []
        seen = served.upstream.received[-1].body["messages"]
        assert [each for each in seen if each in kept] == kept
        assert seen[:2] + seen[-1:] == [user("first"), assistant("One."), user("third")]

    def test_stop_of_a_committed_turn_changes_no_turn(self, serve: Serve) -> None:
        served = serve(["One."])
        turn = f"/api/turns/{send_whole(served.client('k'), 'Hi').turn}"
        before = served.turns("k")
        assert served.http.post(f"{turn}/stop").status_code == 200
        assert served.http.post(f"{turn}/stop", json={"policy": "perhaps"}).status_code == 400
        assert served.http.get(f"{turn}/events", headers={"Last-Event-ID": "last"}).status_code == 400
        assert served.turns("k") == before

    @pytest.mark.parametrize(("method", "path"), [("POST", "stop"), ("GET", "events")])
    def test_unknown_turn_can_be_neither_stopped_nor_followed(
        self, serve: Serve, method: str, path: str
    ) -> None:
        answer = serve().http.request(method, f"/api/turns/{UNKNOWN}/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "turn_not_found")


class TestBusy:
    """While another turn runs."""

    @both_ways
    def test_busy_reject_is_answered_immediately_and_not_retried(
        self, serve: Serve, threads: ThreadPoolExecutor, way: Way
    ) -> None:
        gate = Gate()
        served = serve(["Hel", gate, "lo."])
        running = threads.submit(send_whole, served.client("k"), "first")
        served.wait_arrived(gate)
        with pytest.raises(openai.ConflictError) as problem:
            way(served.client("k", X_Turn_On_Busy="reject"), "second")
        assert problem.value.code == "conversation_busy"
        assert problem.value.response.headers["x-should-retry"] == "false"
        served.release(gate)
        assert running.result().text == "Hello."
        assert served.messages("k") == [("user", "first"), ("assistant", "Hello.")]

    @both_ways
    def test_busy_queue_runs_requests_in_order(
        self, serve: Serve, store_url: str, threads: ThreadPoolExecutor, way: Way
    ) -> None:
        gate = Gate()
        served = serve(["Zero", gate], ["One."], ["Two."], ["Three."], store=store_url)
        pending = [threads.submit(way, served.client("k"), "0")]
        served.wait_arrived(gate)
        for number in range(1, 4):
            pending.append(threads.submit(way, served.client("k"), str(number)))
            served.wait_queued("k", number)
        served.release(gate)
        assert [each.result().text for each in pending] == ["Zero", "One.", "Two.", "Three."]
        assert [text for role, text in served.messages("k") if role == "user"] == ["0", "1", "2", "3"]


class TestEvents:
    """`GET /api/turns/{id}/events`."""

    def test_events_of_a_committed_turn_are_read_from_any_number(self, serve: Serve, store_url: str) -> None:
        served = serve(["Hel", "lo."], store=store_url)
        answer = send_streamed(served.client("k"), "Hi")
        everything = list(events(served, answer.turn))
        numbers = [number for number, _, _ in everything]
        assert numbers == list(range(1, len(everything) + 1))
        assert text_of(everything) == "Hello."
        assert everything[-1][1] == "turn.finished"
        for number in numbers:
            # A client that has received the end receives it again: no stream ends without it.
            rest = everything[number:] or everything[-1:]
            assert list(events(served, answer.turn, after=number)) == rest

    def test_events_of_a_running_turn_are_followed_from_any_number(self, serve: Serve) -> None:
        gate = Gate()
        served = serve(["Hel", gate, "lo."])
        body: Any = {"model": MODEL, "messages": [user("Hi")], "stream": True}
        with served.client("k").chat.completions.create(**body) as chunks:
            turn = next(chunks).id
            following = events(served, turn)
            early = []
            while "Hel" not in text_of(early):
                early.append(next(following))
            served.release(gate)
            late = list(following)
            assert text_of([*early, *late]) == "Hello."
            assert late[-1][1] == "turn.finished"
            assert list(events(served, turn, after=early[-1][0])) == late


StreamEvent = tuple[int, str, Any]


def events(served: LiveServer, turn: str, *, after: int | None = None) -> Iterator[StreamEvent]:
    """Number, kind and content of each event, as they come."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with served.http.stream("GET", f"/api/turns/{turn}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            else:
                yield int(fields["id"]), fields["event"], msgspec.json.decode(fields["data"])
                fields = {}


def text_of(events: Iterable[StreamEvent]) -> str:
    return "".join(content["text"] for _, kind, content in events if kind == "text.delta")


REQUEST: Any = {
    "model": MODEL,
    "messages": [user("Hi")],
    "stream": True,
    "extra_headers": {"Idempotency-Key": "i"},
}


def begin(client: OpenAI) -> tuple[Stream[ChatCompletionChunk], ChatCompletionChunk]:
    """Start the turn or attach to it, and read the first chunk."""
    chunks = client.chat.completions.create(**REQUEST)
    return chunks, next(chunks)


def leave(served: LiveServer, client: OpenAI, chunks: Stream[ChatCompletionChunk]) -> None:
    """Go away, and wait until the server has noticed."""
    others = len(served.server.server_state.connections) - 1
    chunks.close()
    client.close()
    served.wait_until(lambda: len(served.server.server_state.connections) == others)


@pytest.mark.parametrize(
    ("policy", "leaves"), [("discard", "first"), ("keep", "first"), ("discard", "second")]
)
def test_turn_continues_while_another_client_reads_it(serve: Serve, policy: str, leaves: str) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    readers = [served.client("k", X_Turn_On_Disconnect=policy) for _ in range(2)]
    streams = [(client, *begin(client)) for client in readers]
    assert streams[0][2].id == streams[1][2].id
    (client, chunks, _), (_, others, early) = streams if leaves == "first" else reversed(streams)
    leave(served, client, chunks)
    served.release(gate)
    assert collect([early, *others]).text == "Hello."
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello.")]


def test_turn_ends_when_its_last_reader_disconnects(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    starter, reading = [served.client("k", X_Turn_On_Disconnect="discard") for _ in range(2)]
    started, first = begin(starter)
    attached, _ = begin(reading)
    leave(served, starter, started)
    leave(served, reading, attached)
    assert served.do(served.chat("k").outcome(first.id)).turn is None
    assert served.turns("k") == b"[]"


def test_turn_continues_while_its_events_are_read(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    client = served.client("k", X_Turn_On_Disconnect="discard")
    chunks, first = begin(client)
    with served.http.stream("GET", f"/api/turns/{first.id}/events") as reading:
        lines = reading.iter_lines()
        next(lines)
        leave(served, client, chunks)
        served.release(gate)
        assert "turn.finished" in "".join(lines)
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello.")]


@pytest.mark.parametrize("policy", ["continue", "discard"])
def test_queued_request_of_a_disconnected_client_follows_its_policy(
    serve: Serve, threads: ThreadPoolExecutor, policy: str
) -> None:
    gate = Gate()
    served = serve(["Zero", gate], ["One."], ["Two."])
    first = threads.submit(send_whole, served.client("k"), "0")
    served.wait_arrived(gate)
    impatient = served.client("k", X_Turn_On_Disconnect=policy).with_options(
        timeout=httpx2.Timeout(PATIENCE, read=MOMENT)
    )
    with pytest.raises(openai.APITimeoutError):
        send_whole(impatient, "1")
    impatient.close()
    served.wait_until(lambda: len(served.server.server_state.connections) == 1)
    served.wait_queued("k", 1 if policy == "continue" else 0)
    served.release(gate)
    first.result()
    send_whole(served.client("k"), "2")
    questions = [text for role, text in served.messages("k") if role == "user"]
    assert questions == (["0", "1", "2"] if policy == "continue" else ["0", "2"])


@both_ways
def test_next_message_does_not_wait_for_an_answer_whose_client_left(serve: Serve, way: Way) -> None:
    served = serve(["Hel", Gate()], ["Second."])
    client = served.client("k")
    chunks, _ = begin(client)
    leave(served, client, chunks)
    assert way(served.client("k"), "second").text == "Second."
    assert served.messages("k") == [
        ("user", "Hi"),
        ("assistant", "Hel"),
        ("user", "second"),
        ("assistant", "Second."),
    ]


def test_history_with_the_part_that_a_stopped_client_has_shown_goes_on(serve: Serve) -> None:
    served = serve(["Hel", Gate()], ["Second."])
    client = served.client("k")
    chunks, _ = begin(client)
    leave(served, client, chunks)
    shown = [user("Hi"), assistant("Hel"), user("second")]
    again = served.client("k").chat.completions.with_raw_response.create(model=MODEL, messages=shown)
    assert again.headers["x-conversation-state"] == "continued"
    assert [text for _, text in served.messages("k")] == ["Hi", "Hel", "second", "Second."]


def test_retry_of_a_client_that_left_receives_the_answer_that_goes_on(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], ["Second."])
    first, again = served.client("k"), served.client("k")
    chunks, _ = begin(first)
    leave(served, first, chunks)
    others, early = begin(again)
    with ThreadPoolExecutor(1) as thread:
        second = thread.submit(send_whole, served.client("k"), "second")
        served.wait_queued("k", 1)
        served.release(gate)
        assert collect([early, *others]).text == "Hello."
        assert second.result().text == "Second."


def test_turn_of_the_native_api_goes_on_when_its_client_leaves(
    serve: Serve, threads: ThreadPoolExecutor
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], ["Second."])
    body = {"conversation_key": "k", "input": "Hi", "model": MODEL, "stream": True}
    with (
        httpx2.Client(base_url=served.url, timeout=PATIENCE) as client,
        client.stream("POST", "/api/turns", json=body),
    ):
        served.wait_arrived(gate)
    served.wait_until(lambda: len(served.server.server_state.connections) == 0)
    second = threads.submit(send_whole, served.client("k"), "second")
    served.wait_queued("k", 1)
    served.release(gate)
    assert second.result().text == "Second."
    assert [text for _, text in served.messages("k")] == ["Hi", "Hello.", "second", "Second."]


@pytest.mark.parametrize("path", ["/v1/responses", "/api/turns"])
def test_background_turn_goes_on_while_the_next_message_waits(
    serve: Serve, threads: ThreadPoolExecutor, path: str
) -> None:
    gate = Gate()
    served = serve([gate, "Hello."], ["Second."])
    client = served.client("k")
    send = {"conversation_key": "k"} if path == "/api/turns" else {}
    headers = {} if send else {"X-Conversation-Id": "k"}
    body = {"input": "Hi", "model": MODEL, "background": True, **send}
    assert served.http.post(path, json=body, headers=headers).status_code in (200, 202)
    served.wait_arrived(gate)
    second = threads.submit(send_whole, client, "second")
    served.wait_queued("k", 1)
    served.tend()
    served.release(gate)
    assert second.result().text == "Second."
    assert [text for _, text in served.messages("k")] == ["Hi", "Hello.", "second", "Second."]
