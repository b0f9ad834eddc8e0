"""What the official client does not show: the bytes of a stream, and when they leave."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import openai
import pytest

from tests.compat.conftest import Serve
from tests.compat.served import Served
from tests.compat.talking import Way, both_ways, user, whole
from tests.compat.test_client_tools import TWO_CALLS
from turnledger.engine.limits import Limits
from turnledger.engine.turn.commit import commit, resolve_doubt
from turnledger.errors import StoreFull
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.upstream import CUT

HI: dict[str, Any] = {"messages": [user("Hi")], "stream": True}
DONE = "data: [DONE]"


def lines_of(served: Served, conversation: str | None, **headers: str) -> list[str]:
    """The events of a stream; nothing else may stand there, and nothing behind the end."""
    with served.raw(HI, conversation, **headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        text = answer.read().decode()
    assert text.endswith("\n\n")
    return text[:-2].split("\n\n")


def payload(line: str) -> Any:
    assert line.startswith("data: ")
    return msgspec.json.decode(line.removeprefix("data: "))


@pytest.mark.parametrize("conversation", ["k", None])
@pytest.mark.parametrize("script", [["Hel", "lo."], TWO_CALLS], ids=["text", "calls"])
def test_a_stream_is_nothing_but_chunks_and_its_mark_of_the_end(
    serve: Serve, conversation: str | None, script: list[Any]
) -> None:
    *chunks, last = lines_of(serve(script), conversation)
    assert last == DONE
    for line in chunks:
        assert payload(line)["object"] == "chat.completion.chunk"
    assert payload(chunks[-1])["choices"][0]["finish_reason"]


def test_no_header_is_sent_twice(serve: Serve) -> None:
    served = serve(["Hello."], ["Hello."])
    for conversation in ("k", None):
        with served.raw({"messages": [user("Hi")], "stream": True}, conversation) as answer:
            names = [name.lower() for name, _ in answer.headers.raw]
        assert len(set(names)) == len(names)
    events = served.http.get(f"/api/turns/{served.shown('k')['turns'][0]['id']}/events")
    assert len(set(events.headers)) == len(events.headers.raw)
    assert events.headers["cache-control"] == "no-store"


def test_a_replay_and_an_attached_stream_end_likewise(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo.", *TWO_CALLS])
    with served.raw(HI, "k", Idempotency_Key="i") as running:
        lines = running.iter_lines()
        next(lines)
        with served.raw(HI, "k", Idempotency_Key="i") as attached:
            served.release(gate)
            attached_lines = attached.read().decode()[:-2].split("\n\n")
        running.close()
    for each in (attached_lines, lines_of(served, "k", Idempotency_Key="i")):
        *chunks, last = each
        assert last == DONE
        assert all(payload(line)["object"] == "chat.completion.chunk" for line in chunks)
        assert payload(chunks[-1])["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("conversation", ["k", None])
def test_an_error_in_a_stream_is_its_last_event(serve: Serve, conversation: str | None) -> None:
    lines = lines_of(serve(["Hel", CUT]), conversation)
    assert DONE not in lines
    error = payload(lines[-1])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["type"]) == ("model_unavailable", "upstream_error")


def test_the_end_leaves_after_the_commit(serve: Serve, store_url: str) -> None:
    served = serve(["Hello."], store=store_url)
    with served.store.hold(commit) as gate, served.raw(HI, "k") as answer:
        lines = answer.iter_lines()
        assert payload(next(lines))["choices"][0]["delta"]["content"] == "Hello."
        served.arrived(gate)
        assert served.turns("k") == b"[]"
        served.release(gate)
        rest = [line for line in lines if line]
        # The client has the end: whatever it asks now, the turn is there.
        assert rest[-1] == DONE
        assert len(rest) == 2
    assert served.history("k") == [("user", "Hi"), ("assistant", "Hello.")]


def test_no_end_leaves_before_a_commit_that_fails(serve: Serve) -> None:
    served = serve(["Hello."])
    served.store.refuse(commit, StoreFull())
    lines = lines_of(served, "k")
    assert [line for line in lines if "finish_reason" in line and '"stop"' in line] == []
    assert payload(lines[-1])["error"]["code"] == "store_full"


@both_ways
def test_no_answer_comes_before_its_commit(serve: Serve, threads: ThreadPoolExecutor, way: Way) -> None:
    served = serve(["Hello."])
    with served.store.hold(commit) as gate:
        asking = threads.submit(way, served.client("k"), "Hi")
        served.arrived(gate)
        assert not asking.done()
        served.release(gate)
    assert asking.result().text == "Hello."


@both_ways
@pytest.mark.parametrize("fate", Fate)
def test_an_outcome_that_becomes_known_in_time_is_an_answer(
    serve: Serve, store_url: str, way: Way, fate: Fate
) -> None:
    served = serve(["Hello."], store=store_url)
    served.store.lose_answer(commit, fate)
    assert way(served.client("k"), "Hi").text == "Hello."
    assert served.history("k") == [("user", "Hi"), ("assistant", "Hello.")]


@both_ways
@pytest.mark.parametrize("fate", Fate)
def test_an_outcome_that_stays_unknown_is_told_as_such(serve: Serve, way: Way, fate: Fate) -> None:
    served = serve(["Hello."], ["Next."], limits=Limits(doubt_patience=0))
    client = served.client("k")
    served.store.lose_answer(commit, fate)
    served.store.refuse(resolve_doubt)
    with pytest.raises(openai.APIError) as problem:
        way(client, "Hi")
    assert problem.value.code == "commit_outcome_unknown"
    if way is whole:
        assert isinstance(problem.value, openai.InternalServerError)
        assert problem.value.status_code == 503
    served.tend()
    way(client, "next")
    committed = [] if fate is Fate.LOST else [("user", "Hi"), ("assistant", "Hello.")]
    assert served.history("k") == [*committed, ("user", "next"), ("assistant", "Next.")]
