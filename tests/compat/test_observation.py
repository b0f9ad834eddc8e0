"""Metrics and log lines of real turns: outcomes and ids, and no message content."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import openai
import pytest

from tests.compat.completions import Way, both_ways, send_streamed, send_whole, user
from tests.compat.conftest import Serve
from tests.compat.live_server import LiveServer
from tests.unit.server.logging_state import kept_logging
from turnledger.hosting import Host
from turnledger.server.ops import logs
from turnledger.server.turns import run
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Data, End, Status


def counts(served: LiveServer) -> dict[str, float]:
    """Every number by its name, `turnledger_` left out."""
    lines = served.app.service.metrics.text().decode().splitlines()
    samples = (line.removeprefix("turnledger_").rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def open_streams(served: LiveServer) -> float:
    return counts(served)["open_streams"]


def test_turns_are_counted_by_their_outcome(serve: Serve) -> None:
    served = serve(["Hello."], [Status(400)], ["Hel", CUT])
    keyed = served.client("k", Idempotency_Key="i")
    send_whole(keyed, "Hi")
    send_whole(keyed, "Hi")
    for _ in range(2):
        with pytest.raises(openai.APIError):
            send_streamed(served.client("k"), "Hi")
    with pytest.raises(openai.BadRequestError):
        send_whole(served.client("k"), " ")
    counters = counts(served)
    outcomes = {
        name.partition('"')[2].rstrip('"}'): value
        for name, value in counters.items()
        if name.startswith("turns_total")
    }
    assert outcomes == {"completed": 1, "replayed": 1, "failed": 2, "refused": 1}
    assert counters["lane_wait_seconds_count"] == 3
    assert counters["commit_seconds_count"] == 1
    assert counters["first_token_seconds_count"] == 1


def test_open_streams_metric_counts_streams_only_while_they_are_sent(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], ["Hel", gate, "lo."], [Status(400)], ["Hel", CUT])
    kept = served.client("k", Idempotency_Key="i")
    with contextlib.ExitStack() as streams:
        for client in (kept, kept, served.client()):  # one runs, one is attached, one is passed through
            stream = client.chat.completions.create(model="m", messages=[user("Hi")], stream=True)
            chunks = streams.enter_context(stream)
            next(chunks)
        assert open_streams(served) == 3
        served.release(gate)
    served.wait_until(lambda: not Host(served.ledger).at_work().running)
    for _ in range(2):
        with pytest.raises(openai.APIError):
            send_streamed(served.client("other"), "Hi")
    send_streamed(kept, "Hi", model="m")  # a replay
    served.close_clients()
    served.wait_alone()
    assert open_streams(served) == 0


def test_client_that_disconnects_before_the_answer_is_counted_as_499(serve: Serve) -> None:
    gate = Gate()
    served = serve([gate, "Hello."], [gate, "Hello."])
    body = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'
    for headers in ("X-Conversation-Id: k\r\n", ""):
        with socket.create_connection(("127.0.0.1", httpx2.URL(served.url).port)) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{headers}"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            served.wait_arrived(gate, 2 if not headers else 1)
    served.wait_alone()
    served.release(gate)
    served.wait_until(lambda: not served.app._open)
    counters = counts(served)
    assert {name: counters[name] for name in counters if name.startswith("requests_total")} == {
        'requests_total{status="499"}': 2
    }
    assert counters['turns_total{outcome="completed"}'] == 1


class SetTime:
    """The time, as a test sets it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_first_token_metric_excludes_the_wait_in_the_queue(
    serve: Serve, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, time = Gate(), SetTime()
    monkeypatch.setattr(run, "time", time)
    served = serve([gate, "One."], ["Two."])
    first = threads.submit(send_streamed, served.client("k"), "1")
    served.wait_arrived(gate)
    second = threads.submit(send_streamed, served.client("k"), "2")
    served.wait_queued("k")
    counters = counts(served)
    assert (counters["running_turns"], counters["queue_length"]) == (1, 1)
    time.now = 40.0
    served.release(gate)
    assert (first.result().text, second.result().text) == ("One.", "Two.")
    counters = counts(served)
    assert (counters["running_turns"], counters["queue_length"]) == (0, 0)
    assert counters["lane_wait_seconds_sum"] == 40  # of the second
    assert counters["first_token_seconds_count"] == 2
    assert counters["first_token_seconds_sum"] == 40  # of the first


def test_first_token_metric_ignores_an_empty_first_chunk(
    serve: Serve, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, time = Gate(), SetTime()
    monkeypatch.setattr(run, "time", time)
    announced = b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
    payload = b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"One."}}]}'
    served = serve([Data(announced), gate, Data(payload)])
    pending = threads.submit(send_streamed, served.client("k"), "1")
    served.wait_arrived(gate)
    served.wait_until(lambda: open_streams(served))
    assert counts(served)["first_token_seconds_count"] == 0
    time.now = 40.0
    served.release(gate)
    assert pending.result().text == "One."
    counters = counts(served)
    assert (counters["first_token_seconds_count"], counters["first_token_seconds_sum"]) == (1, 40)


QUESTION = "Nobody else's business"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    with kept_logging():
        stream = io.StringIO()
        logs.configure("json", "info", stream)
        yield stream


def test_request_log_line_has_ids_and_outcome_but_no_content(serve: Serve, lines: io.StringIO) -> None:
    served = serve(
        [QUESTION],
        [QUESTION, CUT],
        [Status(400, json.dumps({"error": {"message": QUESTION}}).encode())],
        [Data(QUESTION.encode())],
    )
    client = served.client("k", Authorization="Bearer of-a-token")
    answer = send_whole(client, QUESTION)
    for _ in range(3):
        with pytest.raises(openai.APIError):
            send_streamed(client, QUESTION)
    with pytest.raises(openai.APIError):
        send_whole(client, " ")
    served.close_clients()
    served.wait_alone()
    text = lines.getvalue()
    assert QUESTION not in text
    assert "of-a-token" not in text
    events = [json.loads(line) for line in text.splitlines()]
    assert [(each["status"], each.get("code")) for each in events] == [
        (200, None),
        (200, "model_unavailable"),
        (400, "model_refused"),
        (502, "malformed_answer"),
        (400, "no_new_input"),
    ]
    assert (events[0]["conversation"], events[0]["turn"]) == (answer.conversation, answer.turn)
    assert {each["conversation"] for each in events[:-1]} == {answer.conversation}
    assert len({each["turn"] for each in events[:-1]}) == 4
    assert len({each["request_id"] for each in events}) == 5


@both_ways
def test_request_answered_by_an_earlier_one_is_logged_and_counted_as_joined_or_replayed(
    serve: Serve, threads: ThreadPoolExecutor, lines: io.StringIO, way: Way
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    client = served.client("k", Idempotency_Key="i")
    first = threads.submit(way, client, QUESTION)
    served.wait_arrived(gate)
    joined = threads.submit(way, client, QUESTION)
    outcomes = ("completed", "joined", "replayed")
    served.wait_until(lambda: counts(served).get('turns_total{outcome="joined"}'))
    served.release(gate)
    assert (first.result().text, joined.result().text) == ("Hello.", "Hello.")
    assert way(client, QUESTION).is_replayed
    counters = counts(served)
    assert [counters[f'turns_total{{outcome="{each}"}}'] for each in outcomes] == [1, 1, 1]
    served.close_clients()
    served.wait_alone()
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert sorted(each.get("retry", "") for each in events) == ["", "joined", "replayed"]
    assert len({each["turn"] for each in events}) == 1


@both_ways
def test_failed_finish_without_a_conversation_is_passed_through_and_logged(
    serve: Serve, lines: io.StringIO, way: Way
) -> None:
    served = serve(["Hel", End("abort")], ["Hello."])
    aborted = way(served.client(), QUESTION)
    assert (aborted.text, aborted.finish_reason) == ("Hel", "abort")
    way(served.client(), QUESTION)
    served.close_clients()
    served.wait_alone()
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [each.get("code") for each in events] == ["model_unavailable", None]


def logged_requests(served: LiveServer, lines: io.StringIO) -> list[dict[str, object]]:
    served.close_clients()
    served.wait_alone()
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [each for each in events if each["event"] == "request" and each["path"] == "/v1/chat/completions"]


def test_request_log_line_has_the_number_of_the_try_and_a_digest_of_the_key(
    serve: Serve, lines: io.StringIO
) -> None:
    served = serve(["Hello."])
    key = "customer-17, order 4"
    for count in ("0", "2", "many"):
        client = served.client("k", Idempotency_Key=key)
        send_whole(client, QUESTION, extra_headers={"x-stainless-retry-count": count})
    events = logged_requests(served, lines)
    assert [each.get("try") for each in events] == [None, 2, None]
    assert {each["key"] for each in events} == {hashlib.sha256(key.encode()).hexdigest()[:8]}
    assert key not in lines.getvalue()


def test_repeat_of_a_discarded_turn_and_a_mismatch_are_logged_with_the_turn_that_holds_the_key(
    serve: Serve, threads: ThreadPoolExecutor, lines: io.StringIO
) -> None:
    gate = Gate()
    served = serve([gate, "Hello."])
    client = served.client("k", Idempotency_Key="i")
    first = threads.submit(send_whole, client, QUESTION)
    served.wait_arrived(gate)
    stopping = {"idempotency_key": "i", "policy": "discard"}
    stopped = httpx2.post(f"{served.url}/api/turns/stop", json=stopping).json()
    with pytest.raises(openai.ConflictError):
        first.result()
    with pytest.raises(openai.ConflictError):
        send_whole(client, QUESTION)
    with pytest.raises(openai.UnprocessableEntityError):
        send_whole(client, "Something else")
    counters = counts(served)
    assert [counters[f'turns_total{{outcome="{each}"}}'] for each in ("stopped", "replayed", "refused")] == [
        1
    ] * 3
    events = logged_requests(served, lines)
    assert [(each["code"], each.get("retry")) for each in events] == [
        ("turn_stopped", None),
        ("turn_stopped", "replayed"),
        ("idempotency_mismatch", None),
    ]
    assert {each.get("turn") for each in events} == {stopped["turn"]}
    assert len({each.get("conversation") for each in events}) == 1
