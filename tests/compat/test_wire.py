"""Bytes and timing of streams. Answers in any upstream dialect are stored and sent with the turn id."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import openai
import pytest

from tests.compat.completions import Way, both_ways, send_streamed, send_whole, user
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, LiveServer
from tests.compat.test_client_tools import TWO_CALLS
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.limits import Limits
from turnledger.engine.turn.commit import commit
from turnledger.errors import StoreFull
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.upstream import CUT, Data, End

HI: dict[str, Any] = {"messages": [user("Hi")], "stream": True}
DONE = "data: [DONE]"


def lines_of(served: LiveServer, conversation: str | None, **headers: str) -> list[str]:
    """The events of a stream; nothing else may stand there, and nothing behind the end."""
    with served.raw_completion(HI, conversation, **headers) as answer:
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
def test_stream_consists_of_chunks_and_done(
    serve: Serve, conversation: str | None, script: list[Any]
) -> None:
    *chunks, last = lines_of(serve(script), conversation)
    assert last == DONE
    for line in chunks:
        assert payload(line)["object"] == "chat.completion.chunk"
    assert payload(chunks[-1])["choices"][0]["finish_reason"]


def test_response_headers_are_sent_once(serve: Serve) -> None:
    served = serve(["Hello."], ["Hello."])
    for conversation in ("k", None):
        with served.raw_completion({"messages": [user("Hi")], "stream": True}, conversation) as answer:
            names = [name.lower() for name, _ in answer.headers.raw]
        assert len(set(names)) == len(names)
    events = served.http.get(f"/api/turns/{served.chat_json('k')['turns'][0]['id']}/events")
    assert len(set(events.headers)) == len(events.headers.raw)
    assert events.headers["cache-control"] == "no-store"


def test_replayed_and_attached_streams_end_with_done(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo.", *TWO_CALLS])
    with served.raw_completion(HI, "k", Idempotency_Key="i") as running:
        lines = running.iter_lines()
        next(lines)
        with served.raw_completion(HI, "k", Idempotency_Key="i") as attached:
            served.release(gate)
            attached_lines = attached.read().decode()[:-2].split("\n\n")
        running.close()
    for each in (attached_lines, lines_of(served, "k", Idempotency_Key="i")):
        *chunks, last = each
        assert last == DONE
        assert all(payload(line)["object"] == "chat.completion.chunk" for line in chunks)
        assert payload(chunks[-1])["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("conversation", ["k", None])
def test_error_in_a_stream_is_its_last_event(serve: Serve, conversation: str | None) -> None:
    lines = lines_of(serve(["Hel", CUT]), conversation)
    assert DONE not in lines
    error = payload(lines[-1])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["type"]) == ("model_unavailable", "upstream_error")


def test_stream_end_is_sent_after_the_commit(serve: Serve, store_url: str) -> None:
    served = serve(["Hello."], store=store_url)
    with served.store.hold(commit) as gate, served.raw_completion(HI, "k") as answer:
        lines = answer.iter_lines()
        assert payload(next(lines))["choices"][0]["delta"]["content"] == "Hello."
        served.wait_arrived(gate)
        assert served.turns("k") == b"[]"
        served.release(gate)
        rest = [line for line in lines if line]
        # The client has the end, so every later request sees the turn.
        assert rest[-1] == DONE
        assert len(rest) == 2
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello.")]


def test_stream_with_a_failed_commit_sends_no_end(serve: Serve) -> None:
    served = serve(["Hello."])
    served.store.refuse(commit, StoreFull())
    lines = lines_of(served, "k")
    assert [line for line in lines if "finish_reason" in line and '"stop"' in line] == []
    assert payload(lines[-1])["error"]["code"] == "store_full"


@both_ways
def test_answer_is_sent_after_its_commit(serve: Serve, threads: ThreadPoolExecutor, way: Way) -> None:
    served = serve(["Hello."])
    with served.store.hold(commit) as gate:
        pending = threads.submit(way, served.client("k"), "Hi")
        served.wait_arrived(gate)
        assert not pending.done()
        served.release(gate)
    assert pending.result().text == "Hello."


@both_ways
@pytest.mark.parametrize("fate", Fate)
def test_commit_outcome_that_stays_unknown_is_reported(serve: Serve, way: Way, fate: Fate) -> None:
    served = serve(["Hello."], ["Next."], limits=Limits(doubt_patience=0))
    client = served.client("k")
    served.store.lose_answer(commit, fate)
    served.store.refuse(resolve_doubt)
    with pytest.raises(openai.APIError) as problem:
        way(client, "Hi")
    assert problem.value.code == "commit_outcome_unknown"
    if way is send_whole:
        assert isinstance(problem.value, openai.InternalServerError)
        assert problem.value.status_code == 503
    served.tend()
    way(client, "next")
    committed = [] if fate is Fate.LOST else [("user", "Hi"), ("assistant", "Hello.")]
    assert served.messages("k") == [*committed, ("user", "next"), ("assistant", "Next.")]


HELLO = [("user", "Hi"), ("assistant", "Hello.")]
MARK_ONLY = End(None)
"""The script brings its own finish_reason."""


def chunk(delta: dict[str, Any] | None = None, finish_reason: str | None = None, **fields: Any) -> Data:
    """A chunk; fields that are None are left out, and others stand first."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    defaults = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    fields = {**fields, **{name: value for name, value in defaults.items() if name not in fields}}
    return Data(json.dumps({name: value for name, value in fields.items() if value is not None}).encode())


FIRST, LAST = {"role": "assistant", "content": "Hel"}, {"content": "lo."}
STREAMS: dict[str, list[Data]] = {
    "text and end in one chunk": [chunk(FIRST), chunk(LAST, "stop")],
    "all in one chunk": [chunk({"role": "assistant", "content": "Hello."}, "stop")],
    "filter results before the first chunk": [
        chunk(id="", prompt_filter_results=[{"prompt_index": 0}]),
        chunk(FIRST),
        chunk(LAST),
        chunk({}, "stop"),
    ],
    "no id": [chunk(FIRST, id=None), chunk(LAST, id=None), chunk({}, "stop", id=None)],
    "another id in each chunk": [chunk(FIRST, id="a"), chunk(LAST, id="b"), chunk({}, "stop", id="c")],
    "an id that needs escapes": [chunk(each, id='a"b/ü') for each in (FIRST, LAST)]
    + [chunk({}, "stop", id='a"b/ü')],
    "an id that stands elsewhere, too": [
        chunk(FIRST, model="m", id="m"),
        chunk(LAST, model="m", id="m"),
        chunk({}, "stop", model="m", id="m"),
    ],
    "an id that is the name of a field": [
        chunk(FIRST, object="chat.completion.chunk", id="object"),
        chunk(LAST, "stop", object="chat.completion.chunk", id="object"),
    ],
    "usage unasked": [chunk(FIRST), chunk(LAST), chunk({}, "stop"), chunk(usage={"total_tokens": 1})],
    "nulls and nothings": [
        chunk({"role": "assistant", "content": "", "tool_calls": None, "refusal": None}),
        chunk({"content": "Hel", "function_call": None, "reasoning_content": "Hm."}),
        chunk({"content": None}),
        chunk({**LAST, "tool_calls": []}),
        chunk({"content": ""}, "stop"),
    ],
}


def test_stream_in_any_upstream_dialect_is_stored_and_sent_with_the_turn_id(serve: Serve) -> None:
    served = serve(*([*script, MARK_ONLY] for script in STREAMS.values()))
    for name in STREAMS:
        stream = served.client(name).chat.completions.create(model=MODEL, messages=[user("Hi")], stream=True)
        with stream as chunks:
            received = list(chunks)
        [turn] = served.chat_json(name)["turns"]
        assert {each.id for each in received} == {turn["id"]}, name
        assert {each.object for each in received} == {"chat.completion.chunk"}, name
        assert {each.model for each in received} == {"m"}, name
        assert (
            "".join(each.choices[0].delta.content or "" for each in received if each.choices) == "Hello."
        ), name
        assert [each.choices[0].finish_reason for each in received if each.choices][-1] == "stop", name
        assert served.messages(name) == HELLO, name


def call_piece(arguments: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"index": 0, "id": "call_a", "type": "function", "function": function}


@pytest.mark.parametrize("conversation", ["k", None], ids=["kept", "passed through"])
def test_fields_repeated_by_an_upstream_are_sent_once(serve: Serve, conversation: str | None) -> None:
    """The helper of the official client joins whatever comes twice: roles, ids and names, too."""
    delta = {"role": "assistant", "reasoning": "Hm."}
    served = serve(
        [
            chunk({**delta, "content": "Hel"}),
            chunk({**delta, "content": "lo.", "tool_calls": [call_piece("{")]}),
            chunk({**delta, "content": "", "tool_calls": [call_piece("}")]}),
            chunk({**delta, "content": ""}, "tool_calls", x_timing=0.1),
            MARK_ONLY,
        ]
    )
    client = served.client(conversation)
    with client.chat.completions.stream(model=MODEL, messages=[user("Hi")]) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        message = stream.get_final_completion().choices[0].message
    assert (message.role, message.content) == ("assistant", "Hello.")
    assert [(each.id, each.function.name, each.function.arguments) for each in message.tool_calls or ()] == [
        ("call_a", "weather", "{}")
    ]
    assert [each.choices[0].delta.role for each in chunks] == ["assistant", None, None, None]
    assert [getattr(each.choices[0].delta, "reasoning", None) for each in chunks] == ["Hm."] * 4
    assert getattr(chunks[-1], "x_timing", None) == 0.1


@pytest.mark.parametrize("conversation", ["k", None])
def test_chunk_on_several_lines_reaches_the_client(serve: Serve, conversation: str | None) -> None:
    choice = {"index": 0, "delta": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
    chunk_body = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    lines = [f"data: {line}\n".encode() for line in json.dumps(chunk_body, indent=2).split("\n")]
    served = serve([b"".join([*lines, b"\n"]), MARK_ONLY])
    assert send_streamed(served.client(conversation), "Hi").text == "Hello."


@pytest.mark.parametrize("name", ["x", "", None, 'a"b/ü', "m", "object"])
def test_whole_answer_is_sent_with_the_turn_id(serve: Serve, name: str | None) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
    answer = {"object": "chat.completion", "model": "m", "id": name, "created": 1, "choices": [choice]}
    served = serve([Data(json.dumps(answer).encode())])
    completion = served.client("k").chat.completions.create(model=MODEL, messages=[user("Hi")])
    [turn] = served.chat_json("k")["turns"]
    assert (completion.id, completion.model, completion.object) == (turn["id"], "m", "chat.completion")
    assert served.messages("k") == HELLO


@pytest.mark.parametrize("name", ["x", None, 'a"b'])
def test_surrogate_pair_split_over_chunks_is_stored_as_one_character(serve: Serve, name: str | None) -> None:
    halves = [
        chunk({"role": "assistant", "content": "Hello \ud83c"}, id=name),
        chunk({"content": "\udf0d"}, "stop", id=name),
    ]
    served = serve([*halves, MARK_ONLY])
    text = send_streamed(served.client("k"), "Hi").text
    assert text.encode("utf-16", "surrogatepass").decode("utf-16") == "Hello 🌍"
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello 🌍")]


def test_stream_with_a_finish_reason_but_without_done_is_complete(serve: Serve) -> None:
    served = serve(["Hello.", End("stop", done=False)])
    assert send_streamed(served.client("k"), "Hi").text == "Hello."
    assert served.messages("k") == HELLO


@pytest.mark.parametrize("reason", ["length", "content_filter", "eos_token"])
def test_finish_reason_is_sent_and_replayed(serve: Serve, reason: str) -> None:
    served = serve(["Hello.", End(reason)], ["Hello.", End(reason)])
    for number, way in enumerate((send_whole, send_streamed)):
        for _ in range(2):
            answer = way(served.client("k"), "Hi", extra_headers={"Idempotency-Key": str(number)})
            assert (answer.text, answer.finish_reason) == ("Hello.", reason)


@pytest.mark.parametrize("text", ["Grüße, 世界 🌍", "a\u2028b\x00c", 'q"\\/\r\n\t', "[DONE]", "data: x\n\n"])
def test_text_with_any_characters_is_unchanged_in_both_directions(serve: Serve, text: str) -> None:
    served = serve(otherwise=[*text])
    client = served.client("k", X_Conversation_Messages="new")
    for way in (send_whole, send_streamed):
        assert way(client, text).text == text
    assert served.messages("k") == [("user", text), ("assistant", text)] * 2
    seen = served.upstream.received[-1].body["messages"]
    assert [each["content"] for each in seen] == [text] * 3
