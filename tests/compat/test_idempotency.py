"""Idempotency-Key: the same request happens once, and is answered each time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.compat.conftest import Serve
from tests.compat.served import MODEL
from tests.compat.talking import Told, Way, both_ways, heard, result, streamed, user, whole
from tests.compat.test_client_tools import TWO_CALLS, WEATHER
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Refusal, Status

KEY: Any = {"extra_headers": {"Idempotency-Key": "once"}}
crossed = pytest.mark.parametrize("other", [whole, streamed])
"""How an answer is delivered is no part of what was asked."""


def same(one: Told, other: Told) -> bool:
    names = ("id", "text", "refusal", "finish_reason", "calls", "turn", "conversation")
    return all(getattr(one, name) == getattr(other, name) for name in names)


@both_ways
@crossed
def test_a_committed_answer_is_replayed(serve: Serve, store_url: str, way: Way, other: Way) -> None:
    served = serve(["One."], ["Two."], store=store_url)
    client = served.client("k")
    first = way(client, "Hi", **KEY)
    again = other(client, "Hi", **KEY)
    assert same(first, again)
    assert (first.is_replayed, again.is_replayed) == (False, True)
    way(client, "Hi")
    assert same(first, other(client, "Hi", **KEY))
    assert len(served.upstream.received) == 2
    assert len(served.shown("k")["turns"]) == 2


@both_ways
def test_the_conversation_may_be_named_by_its_id_the_next_time(serve: Serve, way: Way) -> None:
    served = serve(["One."])
    first = way(served.client("k"), "Hi", **KEY)
    assert same(first, way(served.client(first.conversation), "Hi", **KEY))
    assert len(served.shown("k")["turns"]) == 1


@both_ways
def test_calls_and_refusals_are_replayed_as_they_were(serve: Serve, way: Way) -> None:
    served = serve(["Look.", *TWO_CALLS], [Refusal("No.")])
    client = served.client("k")
    first = way(client, "Weather?", tools=[WEATHER], **KEY)
    assert same(first, way(client, "Weather?", tools=[WEATHER], **KEY))
    results = [result("call_a", "1"), result("call_b", "2")]
    other: Any = {"extra_headers": {"Idempotency-Key": "other"}}
    refused = way(client, results, **other)
    assert refused.refusal == "No."
    assert same(refused, way(client, results, **other))


def test_usage_is_replayed_where_it_is_asked_for(serve: Serve) -> None:
    served = serve(["One."])
    client = served.client("k")
    options: Any = {"stream_options": {"include_usage": True}, **KEY}
    first = streamed(client, "Hi", **options)
    assert streamed(client, "Hi", **options).usage == first.usage is not None
    assert streamed(client, "Hi", **KEY).usage is None
    assert whole(client, "Hi", **KEY).usage == first.usage


@both_ways
def test_a_replay_outlives_the_server(serve: Serve, tmp_path: Path, way: Way) -> None:
    store = f"sqlite:///{tmp_path / 'chats.db'}"
    first = way(serve(["One."], store=store).client("k"), "Hi", **KEY)
    other = serve(store=store)
    assert same(first, way(other.client("k"), "Hi", **KEY))
    assert other.upstream.received == []


@crossed
def test_who_asks_while_it_runs_attaches(
    serve: Serve, store_url: str, threads: ThreadPoolExecutor, other: Way
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], store=store_url)
    first = threads.submit(whole, served.client("k"), "Hi", **KEY)
    served.arrived(gate)
    second = threads.submit(other, served.client("k"), "Hi", **KEY)
    served.attached()
    served.release(gate)
    assert same(first.result(), second.result())
    assert len(served.upstream.received) == 1
    assert len(served.shown("k")["turns"]) == 1


def test_who_attaches_hears_what_was_said_before_he_came(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo.", *TWO_CALLS])
    asked: Any = {"model": MODEL, "messages": [user("Hi")], "stream": True, "tools": [WEATHER], **KEY}
    with served.client("k").chat.completions.create(**asked) as running:
        first = next(running)
        with served.client("k").chat.completions.create(**asked) as attached:
            early = next(attached)
            assert (early.id, early.choices[0].delta.content) == (first.id, "Hel")
            served.release(gate)
            told = heard([early, *attached])
        assert same_said(told, heard([first, *running]))
    assert len(served.upstream.received) == 1


def same_said(one: Told, other: Told) -> bool:
    names = ("id", "text", "finish_reason", "calls")
    return all(getattr(one, name) == getattr(other, name) for name in names)


@crossed
def test_who_attached_shares_the_failure(serve: Serve, threads: ThreadPoolExecutor, other: Way) -> None:
    gate = Gate()
    served = serve(["Hel", gate, CUT])
    first = threads.submit(streamed, served.client("k"), "Hi", **KEY)
    served.arrived(gate)
    second = threads.submit(other, served.client("k"), "Hi", **KEY)
    served.attached()
    served.release(gate)
    for each in (first, second):
        assert isinstance(each.exception(), openai.APIError)
    assert served.turns("k") == b"[]"


@both_ways
def test_after_a_failure_the_same_key_tries_again(serve: Serve, way: Way) -> None:
    served = serve([Status(500)], ["Hel", CUT], ["Hello."])
    client = served.client("k")
    for _ in range(2):
        with pytest.raises(openai.APIError):
            way(client, "Hi", **KEY)
    told = way(client, "Hi", **KEY)
    assert (told.text, told.is_replayed) == ("Hello.", False)
    assert same(told, way(client, "Hi", **KEY))
    assert served.history("k") == [("user", "Hi"), ("assistant", "Hello.")]


@both_ways
@pytest.mark.parametrize("change", [{"messages": "Bye"}, {"temperature": 1}, {"conversation": "other"}])
def test_another_request_with_the_same_key_is_refused(serve: Serve, way: Way, change: dict[str, Any]) -> None:
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
def test_a_turn_that_was_stopped_and_discarded_stays_so(serve: Serve, way: Way) -> None:
    gate = Gate()
    served = serve(["Hel", gate])
    client = served.client("k", X_Turn_On_Stop="discard")
    asked: Any = {"model": MODEL, "messages": [user("Hi")], "stream": True, **KEY}
    with client.chat.completions.create(**asked) as chunks:
        turn = next(chunks).id
        assert served.http.post(f"/api/turns/{turn}/stop").json()["state"] == "discarded"
    with pytest.raises(openai.ConflictError) as problem:
        way(client, "Hi", **KEY)
    assert problem.value.code == "turn_stopped"
    assert problem.value.response.headers["x-should-retry"] == "false"
    assert served.turns("k") == b"[]"


@both_ways
def test_a_turn_that_was_stopped_and_kept_is_replayed(serve: Serve, way: Way) -> None:
    gate = Gate()
    served = serve(["Hel", gate])
    client = served.client("k")
    asked: Any = {"model": MODEL, "messages": [user("Hi")], "stream": True, **KEY}
    with client.chat.completions.create(**asked) as chunks:
        turn = next(chunks).id
        assert served.http.post(f"/api/turns/{turn}/stop").json()["state"] == "kept"
    told = way(client, "Hi", **KEY)
    assert (told.turn, told.text, told.is_replayed) == (turn, "Hel", True)


def test_a_key_replayed_after_its_conversation_was_deleted_is_gone(serve: Serve) -> None:
    served = serve(["One."])
    whole(served.client("k"), "Hi", **KEY)
    served.do(served.chat("k").delete())
    with pytest.raises(openai.APIStatusError) as problem:
        whole(served.client("k"), "Hi", **KEY)
    assert (problem.value.status_code, problem.value.code) == (410, "conversation_deleted")
