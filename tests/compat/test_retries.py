"""Retries happen once: an Idempotency-Key replays the answer, and the official client's retries without one
neither commit twice nor lose a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import openai
import pytest

from tests.compat.completions import (
    Answer,
    Way,
    assistant,
    both_ways,
    collect,
    result,
    send_streamed,
    send_whole,
    user,
)
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, NO_TLS, PATIENCE, LiveServer
from tests.compat.retry_clients import MOMENT, Fault, FaultyLine, RetryingClient
from tests.compat.test_client_tools import TWO_CALLS, WEATHER
from turnledger.engine.attempt.client_retries import UNCOUNTED_MS
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.limits import Limits
from turnledger.engine.turn.commit import commit
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.upstream import CUT, Refusal, Status

Retry: TypeAlias = Callable[..., RetryingClient]
HELLO = [("user", "Hi"), ("assistant", "Hello.")]
broken = pytest.mark.parametrize(
    ("way", "fault"), [(send_whole, Fault.TIMES_OUT), (send_streamed, Fault.DROPPED)]
)


def nothing() -> None:
    """Between the tries."""


@pytest.fixture
def retrying() -> Iterator[Retry]:
    """Make clients that retry; `between` is done before each retry."""
    with ExitStack() as clients:

        def make(
            served: LiveServer, line: FaultyLine, between: Callable[[], object] = nothing
        ) -> RetryingClient:
            return clients.enter_context(RetryingClient(served, "k", line, between))

        yield make


def running(served: LiveServer) -> str:
    """The turn that runs, once it does."""
    [attempt] = [each for each in served.chat_json("k")["attempts"] if each["state"] == "running"]
    return str(attempt["id"])


def commit_unheard(served: LiveServer, gate: Gate) -> str:
    """Commit the turn of a disconnected client; return its id."""
    served.wait_alone()
    served.wait_arrived(gate)
    turn = running(served)
    served.release(gate)
    served.do(served.chat("k").outcome(turn))
    return turn


@both_ways
@pytest.mark.parametrize("failure", [[Status(500)], [Status(429)], [CUT]], ids=["5xx", "429", "cut"])
def test_retry_after_failed_tries_commits_once(
    serve: Serve, store_url: str, retrying: Retry, way: Way, failure: list[Status]
) -> None:
    served = serve(failure, failure, ["Hello."], store=store_url)
    line = FaultyLine()
    answer = way(retrying(served, line), "Hi")
    assert line.tries == ["0", "1", "2"]
    assert (answer.text, answer.is_replayed) == ("Hello.", False)
    assert [each.body["messages"] for each in served.upstream.received] == [[user("Hi")]] * 3
    assert served.messages("k") == HELLO


@pytest.mark.parametrize(
    ("way", "faults"),
    [
        (send_whole, [Fault.TIMES_OUT]),
        (send_streamed, [Fault.DROPPED]),
        (send_whole, [Fault.DROPPED, Fault.TIMES_OUT]),
        (send_streamed, [Fault.DROPPED, Fault.TIMES_OUT]),
    ],
)
def test_retry_of_an_abandoned_try_joins_the_running_turn(
    serve: Serve, store_url: str, threads: ThreadPoolExecutor, retrying: Retry, way: Way, faults: list[Fault]
) -> None:
    gate = Gate()
    served = serve([gate, "Hello."], ["Hello, twice."], store=store_url)
    line = FaultyLine(*faults)
    pending = threads.submit(way, retrying(served, line, served.wait_alone), "Hi")
    served.wait_arrived(gate)
    turn = running(served)
    served.wait_until(lambda: len(line.tries) == len(faults) + 1)
    served.wait_attached()
    served.release(gate)
    answer = pending.result()
    assert (answer.text, answer.turn, answer.is_replayed) == ("Hello.", turn, False)
    assert line.tries == [str(number) for number in range(len(faults) + 1)]
    assert len(served.upstream.received) == 1
    assert served.messages("k") == HELLO


@broken
def test_retry_after_an_undelivered_answer_replays_it(
    serve: Serve, store_url: str, retrying: Retry, way: Way, fault: Fault
) -> None:
    gate = Gate()
    served = serve([gate, "Hello."], ["Hello, twice."], store=store_url)
    turns: list[str] = []
    answer = way(
        retrying(served, FaultyLine(fault), lambda: turns.append(commit_unheard(served, gate))), "Hi"
    )
    assert (answer.text, answer.turn, answer.is_replayed) == ("Hello.", turns[0], True)
    assert len(served.upstream.received) == 1
    assert served.messages("k") == HELLO


@both_ways
def test_retry_of_a_try_abandoned_in_the_queue_runs_once(
    serve: Serve, store_url: str, threads: ThreadPoolExecutor, retrying: Retry, way: Way
) -> None:
    gate = Gate()
    served = serve(["First", gate, "."], ["Hello."], ["Hello, twice."], store=store_url)
    first = threads.submit(send_whole, served.client("k"), "first")
    served.wait_arrived(gate)
    line = FaultyLine(Fault.DROPPED)
    pending = threads.submit(way, retrying(served, line, lambda: served.wait_queued("k")), "Hi")
    served.wait_queued("k", 2)
    served.release(gate)
    assert (first.result().text, pending.result().text) == ("First.", "Hello.")
    assert line.tries == ["0", "1"]
    assert served.messages("k")[2:] == HELLO
    assert len(served.upstream.received) == 2


def test_retry_of_a_try_abandoned_in_the_queue_streams_the_turn_as_it_runs(
    serve: Serve, threads: ThreadPoolExecutor, retrying: Retry
) -> None:
    first_gate, gate = Gate(), Gate()
    served = serve(["First", first_gate, "."], ["Hel", gate, "lo."], ["Hello, twice."])
    first = threads.submit(send_whole, served.client("k"), "first")
    served.wait_arrived(first_gate)
    client = retrying(served, FaultyLine(Fault.DROPPED), lambda: served.wait_queued("k"))
    body: Any = {"model": MODEL, "messages": [user("Hi")], "stream": True}
    pending = threads.submit(client.chat.completions.create, **body)
    served.wait_queued("k", 2)
    served.release(first_gate)
    first.result()
    with pending.result() as chunks:
        early = next(chunks)
        assert early.choices[0].delta.content == "Hel"
        served.release(gate)
        assert collect([early, *chunks]).text == "Hello."
    assert served.messages("k")[2:] == HELLO


@both_ways
def test_retry_with_a_resent_history_replays_the_answer(serve: Serve, retrying: Retry, way: Way) -> None:
    gate = Gate()
    served = serve(["One."], [gate, "Hello."], ["Hello, twice."])
    send_whole(served.client("k"), "first")
    served.close_clients()
    client = retrying(served, FaultyLine(Fault.DROPPED), lambda: commit_unheard(served, gate))
    answer = way(client, [user("first"), assistant("One."), user("Hi")])
    assert (answer.text, answer.state) == ("Hello.", "continued")
    assert served.messages("k")[2:] == HELLO


@pytest.mark.parametrize("fate", Fate)
def test_retry_after_an_unknown_commit_outcome_does_not_repeat_a_committed_turn(
    serve: Serve, store_url: str, retrying: Retry, fate: Fate
) -> None:
    served = serve(["Hello."], ["Hello, again."], limits=Limits(doubt_patience=0), store=store_url)
    served.store.lose_answer(commit, fate)
    served.store.refuse(resolve_doubt)
    line = FaultyLine()
    answer = send_whole(retrying(served, line, served.tend), "Hi")
    assert line.tries == ["0", "1"]
    assert answer.is_replayed is (fate is not Fate.LOST)
    assert served.messages("k") == [("user", "Hi"), ("assistant", answer.text)]
    assert len(served.upstream.received) == (2 if fate is Fate.LOST else 1)


@both_ways
@pytest.mark.parametrize(
    ("faults", "failures", "tries"),
    [
        ((), (), ["0", "0"]),
        ([Fault.NOTHING, Fault.NEVER_SENT], (), ["0", "0", "1"]),
        ((), [[Status(500)]], ["0", "0", "1"]),
    ],
    ids=["at once", "first try lost", "first try failed"],
)
def test_second_identical_message_is_a_second_turn(
    serve: Serve, store_url: str, retrying: Retry, way: Way, faults: Any, failures: Any, tries: list[str]
) -> None:
    served = serve(["Hello."], ["One."], *failures, ["Two."], store=store_url)
    send_whole(served.client("k"), "Hi")
    line = FaultyLine(*faults)
    client = retrying(served, line)
    answers = [way(client, "Yes"), way(client, "Yes")]
    assert line.tries == tries
    assert [(each.text, each.is_replayed) for each in answers] == [("One.", False), ("Two.", False)]
    assert [text for _, text in served.messages("k")][2:] == ["Yes", "One.", "Yes", "Two."]


@both_ways
def test_replayed_answer_is_not_given_to_the_next_message(serve: Serve, retrying: Retry, way: Way) -> None:
    gate = Gate()
    served = serve([gate, "One."], ["Two."])
    line = FaultyLine(Fault.DROPPED, Fault.NOTHING, Fault.NEVER_SENT)
    client = retrying(served, line, lambda: commit_unheard(served, gate))
    assert way(client, "Yes").text == "One."
    client._between = nothing
    assert way(client, "Yes").text == "Two."
    assert line.tries == ["0", "1", "0", "1"]


ASK: Any = user("Weather?")
KEY: Any = {"extra_headers": {"Idempotency-Key": "once"}}
crossed = pytest.mark.parametrize("other", [send_whole, send_streamed])
"""The delivery of an answer is not part of the request."""


def same(one: Answer, other: Answer, *, with_headers: bool = True) -> bool:
    names = ["id", "text", "refusal", "finish_reason", "calls"]
    names += ["turn", "conversation"] if with_headers else []
    return all(getattr(one, name) == getattr(other, name) for name in names)


@both_ways
@crossed
def test_idempotency_key_replays_the_answer(serve: Serve, store_url: str, way: Way, other: Way) -> None:
    served = serve(["One."], ["Two."], store=store_url)
    client = served.client("k")
    first = way(client, "Hi", **KEY)
    again = other(client, "Hi", **KEY)
    assert same(first, again)
    assert (first.is_replayed, again.is_replayed) == (False, True)
    way(client, "Hi again")
    assert same(first, other(client, "Hi", **KEY))
    assert len(served.upstream.received) == 2
    assert len(served.chat_json("k")["turns"]) == 2


@both_ways
def test_idempotency_key_replays_when_the_conversation_is_named_by_id(serve: Serve, way: Way) -> None:
    served = serve(["One."])
    first = way(served.client("k"), "Hi", **KEY)
    assert same(first, way(served.client(first.conversation), "Hi", **KEY))
    assert len(served.chat_json("k")["turns"]) == 1


@both_ways
def test_idempotency_key_replays_tool_calls_and_refusals(serve: Serve, way: Way) -> None:
    served = serve(["Look.", *TWO_CALLS], [Refusal("No.")])
    client = served.client("k")
    first = way(client, "Weather?", tools=[WEATHER], **KEY)
    assert same(first, way(client, "Weather?", tools=[WEATHER], **KEY))
    results = [result("call_a", "1"), result("call_b", "2")]
    other: Any = {"extra_headers": {"Idempotency-Key": "other"}}
    refused = way(client, results, **other)
    assert refused.refusal == "No."
    assert same(refused, way(client, results, **other))


def test_idempotency_key_replays_the_arguments_of_calls_as_they_came(serve: Serve) -> None:
    served = serve([*TWO_CALLS])
    client = served.client("k")

    def arguments() -> list[tuple[int, str | None]]:
        chunks = client.chat.completions.create(model=MODEL, messages=[ASK], stream=True, **KEY)
        calls = [call for chunk in chunks for each in chunk.choices for call in each.delta.tool_calls or ()]
        return [(call.index, call.function.arguments) for call in calls if call.function is not None]

    sent = [piece for piece in arguments() if piece[1]]
    assert len(sent) > 2
    assert [piece for piece in arguments() if piece[1]] == sent
    assert len(served.upstream.received) == 1


def test_idempotency_key_replays_usage_on_request(serve: Serve) -> None:
    served = serve(["One."])
    client = served.client("k")
    options: Any = {"stream_options": {"include_usage": True}, **KEY}
    first = send_streamed(client, "Hi", **options)
    assert send_streamed(client, "Hi", **options).usage == first.usage is not None
    assert send_streamed(client, "Hi", **KEY).usage is None
    assert send_whole(client, "Hi", **KEY).usage == first.usage


@both_ways
def test_idempotency_key_replays_after_a_server_restart(serve: Serve, tmp_path: Path, way: Way) -> None:
    store = f"sqlite:///{tmp_path / 'chats.db'}"
    first = way(serve(["One."], store=store).client("k"), "Hi", **KEY)
    other = serve(store=store)
    assert same(first, way(other.client("k"), "Hi", **KEY))
    assert other.upstream.received == []


@crossed
def test_idempotency_key_attaches_to_the_running_turn(
    serve: Serve, store_url: str, threads: ThreadPoolExecutor, other: Way
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], store=store_url)
    first = threads.submit(send_whole, served.client("k"), "Hi", **KEY)
    served.wait_arrived(gate)
    second = threads.submit(other, served.client("k"), "Hi", **KEY)
    served.wait_attached()
    served.release(gate)
    assert same(first.result(), second.result())
    assert len(served.upstream.received) == 1
    assert len(served.chat_json("k")["turns"]) == 1


def test_attached_stream_starts_with_the_text_already_sent(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo.", *TWO_CALLS])
    body: Any = {"model": MODEL, "messages": [user("Hi")], "stream": True, "tools": [WEATHER], **KEY}
    with served.client("k").chat.completions.create(**body) as running:
        first = next(running)
        with served.client("k").chat.completions.create(**body) as attached:
            early = next(attached)
            assert (early.id, early.choices[0].delta.content) == (first.id, "Hel")
            served.release(gate)
            answer = collect([early, *attached])
        assert same(answer, collect([first, *running]), with_headers=False)
    assert len(served.upstream.received) == 1


@crossed
def test_attached_request_shares_the_failure(serve: Serve, threads: ThreadPoolExecutor, other: Way) -> None:
    gate = Gate()
    served = serve(["Hel", gate, CUT])
    first = threads.submit(send_streamed, served.client("k"), "Hi", **KEY)
    served.wait_arrived(gate)
    second = threads.submit(other, served.client("k"), "Hi", **KEY)
    served.wait_attached()
    served.release(gate)
    for each in (first, second):
        assert isinstance(each.exception(), openai.APIError)
    assert served.turns("k") == b"[]"


@both_ways
def test_idempotency_key_runs_again_after_a_failure(serve: Serve, way: Way) -> None:
    served = serve([Status(500)], ["Hel", CUT], ["Hello."])
    client = served.client("k")
    for _ in range(2):
        with pytest.raises(openai.APIError):
            way(client, "Hi", **KEY)
    answer = way(client, "Hi", **KEY)
    assert (answer.text, answer.is_replayed) == ("Hello.", False)
    assert same(answer, way(client, "Hi", **KEY))
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello.")]


@both_ways
@pytest.mark.parametrize("change", [{"messages": "Bye"}, {"temperature": 1}, {"conversation": "other"}])
def test_reused_idempotency_key_is_refused(serve: Serve, way: Way, change: dict[str, Any]) -> None:
    served = serve(["One."], ["Two."])
    way(served.client("k"), "Hi", **KEY)
    before = served.turns("k")
    change = dict(change)
    client = served.client(change.pop("conversation", "k"))
    with pytest.raises(openai.UnprocessableEntityError) as problem:
        way(client, change.pop("messages", "Hi"), **change, **KEY)
    assert problem.value.code == "idempotency_mismatch"
    assert served.turns("k") == before
    assert len(served.upstream.received) == 1


@both_ways
@pytest.mark.parametrize(("policy", "state"), [("discard", "discarded"), ("keep", "kept")])
def test_idempotency_key_of_a_stopped_turn_replays_what_was_kept(
    serve: Serve, way: Way, policy: str, state: str
) -> None:
    gate = Gate()
    served = serve(["Hel", gate])
    client = served.client("k", X_Turn_On_Stop=policy)
    body: Any = {"model": MODEL, "messages": [user("Hi")], "stream": True, **KEY}
    with client.chat.completions.create(**body) as chunks:
        turn = next(chunks).id
        assert served.http.post(f"/api/turns/{turn}/stop").json()["state"] == state
    if policy == "keep":
        answer = way(client, "Hi", **KEY)
        assert (answer.turn, answer.text, answer.is_replayed) == (turn, "Hel", True)
        return
    with pytest.raises(openai.ConflictError) as problem:
        way(client, "Hi", **KEY)
    assert problem.value.code == "turn_stopped"
    assert problem.value.response.headers["x-should-retry"] == "false"
    assert served.turns("k") == b"[]"


def send_uncounted(served: LiveServer, text: str = "Hi", *, leaves: bool = False) -> str:
    """Send a message as clients do that count no tries; return the answer."""
    body = {"model": MODEL, "messages": [user(text)]}
    headers = {"X-Conversation-Id": "k", "X-Conversation-Messages": "new"}
    wait = httpx2.Timeout(PATIENCE, read=MOMENT if leaves else PATIENCE)
    with httpx2.Client(base_url=served.url, timeout=wait, verify=NO_TLS) as client:
        answer = client.post("/v1/chat/completions", json=body, headers=headers).json()
    return str(answer["choices"][0]["message"]["content"])


def lose_answer(served: LiveServer, gate: Gate) -> None:
    """Send a message, and leave before its answer; then let the turn commit."""
    with pytest.raises(httpx2.ReadTimeout):
        send_uncounted(served, leaves=True)
    served.wait_until(lambda: not served.server.server_state.connections)
    served.release(gate)
    served.wait_until(lambda: not served.ledger._process.attempts)


def test_uncounted_request_receives_the_answer_that_its_predecessor_lost(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], ["Twice."])
    lose_answer(served, gate)
    assert send_uncounted(served) == "Hello."
    assert send_uncounted(served) == "Twice."  # that one was delivered
    assert [text for _, text in served.messages("k")] == ["Hi", "Hello.", "Hi", "Twice."]


def test_uncounted_request_joins_its_predecessor_while_that_runs(
    serve: Serve, threads: ThreadPoolExecutor
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], ["Twice."])
    with pytest.raises(httpx2.ReadTimeout):
        send_uncounted(served, leaves=True)
    served.wait_until(lambda: not served.server.server_state.connections)
    joined = threads.submit(send_uncounted, served)
    served.wait_until(lambda: served.server.server_state.connections)
    served.release(gate)
    assert joined.result() == "Hello."
    assert [text for _, text in served.messages("k")] == ["Hi", "Hello."]


@pytest.mark.parametrize(("text", "ahead_ms"), [("Hi", UNCOUNTED_MS), ("Ho", 0)])
def test_uncounted_request_is_another_message_after_a_while_or_with_other_words(
    serve: Serve, text: str, ahead_ms: int
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], ["Twice."])
    lose_answer(served, gate)
    served.clock.ahead_ms = ahead_ms
    assert send_uncounted(served, text) == "Twice."


@pytest.mark.parametrize("is_committed", [False, True])
def test_uncounted_request_whose_predecessor_left_within_its_answer_asks_again(
    serve: Serve, is_committed: bool
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], ["Twice."])
    headers = {"X-Conversation-Id": "k"}
    body = {"model": MODEL, "messages": [user("Hi")], "stream": True}
    with served.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        next(answer.iter_lines())
    served.wait_until(lambda: not served.server.server_state.connections)
    if is_committed:
        served.release(gate)
        served.wait_until(lambda: not served.ledger._process.attempts)
    again = served.http.post("/v1/chat/completions", json=body, headers=headers)
    assert "Twice." in again.text
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Twice.")]


def test_uncounted_request_after_a_stop_asks_again(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate], ["Hello again."])
    with pytest.raises(httpx2.ReadTimeout):
        send_uncounted(served, leaves=True)
    served.wait_until(lambda: not served.server.server_state.connections)
    [attempt] = served.chat_json("k")["attempts"]
    served.http.post(f"/api/turns/{attempt['id']}/stop")
    assert send_uncounted(served) == "Hello again."
