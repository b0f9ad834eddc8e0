"""The Responses API through the official client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeAlias

import openai
import pytest
from pydantic import BaseModel

from tests.compat.completions import send_whole
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, LiveServer
from tests.compat.responses import (
    checked,
    checked_conversation_item,
    checked_events,
    checked_item,
    conversation_of,
    create,
    raw_events,
    raw_stream,
    stream,
    types,
)
from turnledger.engine.limits import Limits
from turnledger.hosting import OWNER
from turnledger.server.config.settings import ChatSettings, Settings
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Call, Data, End, Refusal, Status

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
THOUGHT = Data(b'{"choices":[{"delta":{"reasoning_content":"Hm"}}]}')
MORE_THOUGHT = Data(b'{"choices":[{"delta":{"reasoning_content":", yes"}}]}')
UNKNOWN = "conv_01890000000070008000000000000000"
CUSTOM = Data(
    b'{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"custom","custom":'
    b'{"name":"raw","input":"x"}}]}}]}'
)
EVERY_KIND = [THOUGHT, MORE_THOUGHT, "Let me", " look.", Call("weather", '{"city": "Rome"}', "call_a")]


def test_response_is_the_same_created_streamed_and_read_again(serve: Serve, store_url: str) -> None:
    served = serve(["Hel", "lo"], ["Hel", "lo"], store=store_url)
    client = served.client()
    whole = create(client, "Hi", temperature=0.5, max_output_tokens=9, metadata={"a": "b"}, user="u")
    assert (whole.status, whole.output_text, whole.store) == ("completed", "Hello", True)  # type: ignore[attr-defined]
    assert (whole.temperature, whole.max_output_tokens, whole.metadata) == (0.5, 9, {"a": "b"})
    sent = served.upstream.received[-1].body
    assert (sent["temperature"], sent["max_tokens"]) == (0.5, 9)
    assert not {"metadata", "store", "user", "max_output_tokens"} & sent.keys()
    assert checked(client.responses.retrieve(whole.id)) == whole
    events = stream(client, "Hi")
    assert events[-1].response.output_text == "Hello"
    assert checked(client.responses.retrieve(events[-1].response.id)) == events[-1].response


def test_settings_reach_the_model_and_are_shown_in_the_response(serve: Serve) -> None:
    served = serve(["{}"])
    grammar: Any = {"type": "grammar", "definition": "start: /a/", "syntax": "lark"}
    schema: Any = {"type": "object", "properties": {}}
    fields: dict[str, Any] = {
        "tools": [WEATHER, {"type": "custom", "name": "raw", "description": "Raw.", "format": grammar}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [_NAMED]},
        "parallel_tool_calls": False,
        "text": {
            "format": {"type": "json_schema", "name": "sky", "schema": schema, "strict": True},
            "verbosity": "low",
        },
        "reasoning": {"effort": "high", "summary": "auto"},
        "top_p": 0.5,
    }
    chosen = {"type": "function", "function": {"name": "weather"}}
    more = {"presence_penalty": -1.5, "seed": 7, "stop": ["."], "logit_bias": {"1": 2}}
    made = create(served.client(), "Hi", **fields, extra_body=more)
    body = served.upstream.received[-1].body
    assert {name: body[name] for name in body.keys() - {"model", "messages", "stream"}} == {
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "parameters": {"type": "object"}, "strict": False},
            },
            {
                "type": "custom",
                "custom": {
                    "name": "raw",
                    "description": "Raw.",
                    "format": {"type": "grammar", "grammar": {"definition": "start: /a/", "syntax": "lark"}},
                },
            },
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [chosen]},
        },
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "sky", "schema": schema, "strict": True},
        },
        "verbosity": "low",
        "reasoning_effort": "high",
        "top_p": 0.5,
        **more,
    }
    shown = made.to_dict()
    for name, value in fields.items():
        assert shown[name] == value


def test_conversation_may_be_named_by_its_object(serve: Serve) -> None:
    client = serve(["one"], ["two"]).client()
    first = create(client, "1")
    second = create(client, "2", conversation={"id": conversation_of(first)})
    assert second.conversation == first.conversation
    whole: Any = client.conversations.retrieve(conversation_of(first)).to_dict()
    assert client.responses.input_tokens.count(model=MODEL, input="3", conversation=whole).input_tokens > 4


def test_stream_has_an_event_for_each_part_of_every_kind(serve: Serve) -> None:
    events = stream(serve(EVERY_KIND).client(), "Weather?", tools=[WEATHER])
    assert types(events) == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        "output_item.added",
        *["function_call_arguments.delta"] * 4,
        *("output_text.done", "content_part.done", "output_item.done"),
        *("function_call_arguments.done", "output_item.done", "completed"),
    ]
    final = events[-1].response
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert sorted(item.id for item in done) == sorted(item.id for item in final.output)


def test_reasoning_is_sent_as_a_summary_when_the_request_asks_for_one(serve: Serve) -> None:
    client = serve([THOUGHT, "Yes"], [THOUGHT, "Yes"]).client()
    events = stream(client, "Well?", reasoning={"effort": "low", "summary": "auto"})
    assert "reasoning_summary_text.delta" in types(events)
    [thought, _] = events[-1].response.output
    assert [part.text for part in thought.summary] == ["Hm"]
    assert checked(client.responses.retrieve(events[-1].response.id)) == events[-1].response


def test_refusal_is_sent_as_the_content_of_a_message(serve: Serve) -> None:
    client = serve([Refusal("No.")]).client()
    events = stream(client, "Please")
    assert {"refusal.delta", "refusal.done"} <= set(types(events))
    assert events[-1].response.output[0].content[0].refusal == "No."


def test_events_read_later_are_the_bytes_that_were_streamed_from_every_number_on(
    serve: Serve, store_url: str
) -> None:
    served = serve(EVERY_KIND, store=store_url)
    live = raw_stream(served, input="Weather?", tools=[WEATHER])
    id = served.client().responses.retrieve(_id_in(live[0])).id
    assert raw_events(served, id) == live
    for number in range(len(live)):
        assert raw_events(served, id, number) == live[number + 1 :]
    assert raw_events(served, id, len(live)) == []


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_response_that_ended_early_sends_nothing_beyond_its_last_event(serve: Serve, end: str) -> None:
    gate = Gate()
    served = serve(["Half", CUT if end == "failed" else gate])
    client = served.client()
    live = client.responses.create(model=MODEL, input="Hi", stream=True)
    sent = [next(live)]
    id = sent[0].response.id  # type: ignore[union-attr]
    if end == "cancelled":
        served.wait_arrived(gate)
        client.responses.cancel(id)
    sent = checked_events([*sent, *live])
    assert sent[-1].response.status == end
    last = sent[-1].sequence_number
    assert len(raw_events(served, id, last - 1)) == 1
    assert [raw_events(served, id, number) for number in (last, last + 1, last + 9)] == [[], [], []]


def _id_in(event: bytes) -> str:
    return "resp_" + event.partition(b'"resp_')[2].partition(b'"')[0].decode()


def test_running_response_is_followed_from_any_event_and_by_several_readers(
    serve: Serve, threads: ThreadPoolExecutor
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo"])
    client = served.client()
    live = client.responses.create(model=MODEL, input="Hi", stream=True)
    started = [next(live) for _ in range(5)]
    id = started[0].response.id  # type: ignore[union-attr]
    assert checked(client.responses.retrieve(id)).status == "in_progress"
    followers = [
        threads.submit(
            lambda after=after: checked_events(
                served.client().responses.retrieve(id, stream=True, starting_after=after)
            )
        )
        for after in (0, 3)
    ]
    served.wait_until(lambda: len(served.app.service.audience.turns))
    served.release(gate)
    events = [*started, *live]
    for after, follower in zip((0, 3), followers, strict=True):
        assert follower.result() == events[after + 1 :]


@pytest.mark.parametrize("store", [True, False])
def test_silent_stream_sends_comments(serve: Serve, *, store: bool) -> None:
    gate = Gate()
    served = serve([gate, "one"])
    body = {"model": MODEL, "input": "Hi", "stream": True, "store": store}
    with served.http.stream("POST", "/v1/responses", json=body) as answer:
        served.wait_arrived(gate)
        served.do(_send_heartbeats(served))
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith(":")) == ": "
        served.release(gate)
        assert "event: response.completed" in list(lines)


def test_stream_that_waits_for_its_lane_sends_comments(serve: Serve, threads: ThreadPoolExecutor) -> None:
    gate = Gate()
    served = serve([gate, "one"], ["two"])
    first = threads.submit(create, served.client("k"), "1")
    served.wait_arrived(gate)
    second = threads.submit(stream_text, served, "2", "k")
    served.wait_queued("k")
    served.do(_send_heartbeats(served))
    served.release(gate)
    assert first.result().output_text == "one"
    text = second.result()
    assert text.startswith(": \n\nevent: response.created\n")
    assert "event: response.completed" in text


def stream_text(served: LiveServer, input: str, conversation: str) -> str:
    body = {"model": MODEL, "input": input, "stream": True}
    return served.http.post("/v1/responses", json=body, headers={"X-Conversation-Id": conversation}).text


async def _send_heartbeats(served: LiveServer) -> None:
    for _ in range(2):  # the first one finds a stream that has just begun
        served.app.service.streams.send_heartbeats()


def test_error_of_a_followed_response_is_an_event_with_the_next_number(
    serve: Serve, threads: ThreadPoolExecutor
) -> None:
    gate = Gate()
    served = serve(["Hel", gate])
    client = served.client()
    live = client.responses.create(model=MODEL, input="Hi", stream=True)
    first = next(live).response  # type: ignore[union-attr]
    follower = threads.submit(lambda: checked_events(client.responses.retrieve(first.id, stream=True)))
    served.wait_attached()
    client.conversations.delete(conversation_of(first))
    last = follower.result()[-1]
    assert (last.type, last.code) == ("error", "conversation_deleted")


def test_stream_helper_parses_a_schema_and_its_stream_resumes(serve: Serve) -> None:
    class City(BaseModel):
        name: str

    served = serve(['{"name": ', '"Rome"}'], ['{"name": "Oslo"}'])
    client = served.client()
    with client.responses.stream(model=MODEL, input="Where?", text_format=City) as events:
        final = events.until_done().get_final_response()
    assert final.output_parsed == City(name="Rome")
    sent = served.upstream.received[-1].body["response_format"]
    assert (sent["type"], sent["json_schema"]["name"]) == ("json_schema", "City")
    with client.responses.stream(response_id=final.id, text_format=City, starting_after=4) as rest:
        assert rest.until_done().get_final_response().output_parsed == City(name="Rome")
    assert client.responses.parse(model=MODEL, input="Else?", text_format=City).output_parsed == City(
        name="Oslo"
    )


# Where a response continues.


def test_previous_response_continues_its_conversation_and_instructions_are_not_inherited(
    serve: Serve,
) -> None:
    served = serve(["one"], ["two"], ["three"])
    client = served.client()
    first = create(client, "1", instructions="Be brief.")
    assert first.instructions == "Be brief."
    second = create(client, "2", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.instructions is None
    assert conversation_of(second) == conversation_of(first)
    assert [each["content"] for each in served.upstream.received[-1].body["messages"]] == ["1", "one", "2"]
    third = create(client, "3", conversation=conversation_of(first))
    seen = [each["content"] for each in served.upstream.received[-1].body["messages"]]
    assert seen == ["1", "one", "2", "two", "3"]
    assert checked(client.responses.retrieve(third.id)).conversation == third.conversation


def test_parallel_continuations_of_one_response_never_queue_and_move_the_pointer_once(
    serve: Serve, threads: ThreadPoolExecutor
) -> None:
    gates = [Gate() for _ in range(8)]
    served = serve(["one"], *[[gate, "more"] for gate in gates], ["last"])
    client = served.client()
    first = create(client, "1")
    answers = [
        threads.submit(create, client, f"2.{number}", previous_response_id=first.id) for number in range(8)
    ]
    for gate in gates:
        served.wait_arrived(gate)  # all run at once
    for gate in gates:
        served.release(gate)
    made = [answer.result() for answer in answers]
    items = client.conversations.items.list(conversation_of(first), order="asc").data
    texts = [item.content[0].text for item in items]  # type: ignore[union-attr]
    assert len(texts) == 4
    assert texts[2] in {f"2.{number}" for number in range(8)}
    another = next(each for each in made if each.id not in {_response_of(items[2].id or "")})
    create(client, "3", previous_response_id=another.id)
    seen = [each["content"] for each in served.upstream.received[-1].body["messages"]]
    assert seen[:2] == ["1", "one"]
    assert len(seen) == 5
    assert len(client.conversations.items.list(conversation_of(first)).data) == 4


def _response_of(item: str) -> str:
    return "resp_" + item.partition("_")[2][:32]


@pytest.mark.parametrize("id", ["resp_nothing", "resp_01a1edd419f6771dacfa8ac1dbb12efb"])
def test_unknown_previous_response_is_refused_by_name(serve: Serve, id: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        create(serve().client(), "Hi", previous_response_id=id)
    assert (refused.value.code, refused.value.param) == (
        "previous_response_not_found",
        "previous_response_id",
    )


def test_failed_response_is_reported_and_cannot_be_continued(serve: Serve) -> None:
    served = serve(["Half", CUT], [Status(503)], ["fine"])
    client = served.client("k")
    events = stream(client, "Hi")
    assert types(events)[-1] == "failed"
    failed = events[-1].response
    assert (failed.status, failed.error.code, failed.output) == ("failed", "server_error", [])
    assert checked(client.responses.retrieve(failed.id)).status == "failed"
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        create(client, "More", previous_response_id=failed.id)
    with pytest.raises(openai.InternalServerError):
        create(client, "Hi")
    create(client, "Again")
    assert served.messages("k") == [("user", "Again"), ("assistant", "fine")]


def test_settled_turn_is_a_failed_response_whose_calls_are_in_its_output(serve: Serve) -> None:
    served = serve(["Hello"])
    client = served.client()
    key = "settled"

    async def pay() -> str:
        return "paid"

    async def fail_after_paying() -> None:
        with suppress(RuntimeError):
            async with served.ledger.for_owner(OWNER).turn("Pay.", conversation_key=key) as turn:
                ids.append(turn.id.replace("turn_", "resp_"))
                await turn.call(call, pay)
                raise RuntimeError

    call = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}
    ids: list[str] = []
    served.do(fail_after_paying())
    assert checked(client.responses.retrieve(ids[0])).status == "failed"
    create(served.client(key), "And?")
    settled = checked(client.responses.retrieve(ids[0]))
    assert settled.status == "failed"
    assert settled.error is not None
    assert [item.type for item in settled.output] == ["function_call", "function_call_output"]
    events = checked_events(client.responses.retrieve(ids[0], stream=True))
    assert types(events)[-1] == "failed"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == events[-1].response.output == settled.output
    items = client.conversations.items.list(conversation_of(settled), order="asc").data
    assert [checked_conversation_item(item).type for item in items][:4] == [
        *("message", "function_call", "function_call_output", "message")
    ]
    seen = [each["role"] for each in served.upstream.received[-1].body["messages"]]
    assert seen == ["user", "assistant", "tool", "developer", "user"]


def test_answer_cut_by_its_length_is_incomplete_and_stored(serve: Serve) -> None:
    client = serve(["Half", End("length")]).client()
    events = stream(client, "Hi")
    assert types(events)[-1] == "incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert checked(client.responses.retrieve(events[-1].response.id)) == events[-1].response


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize(
    ("steps", "statuses"),
    [
        (["Half"], ["incomplete"]),
        ([Refusal("I ca")], ["incomplete"]),
        ([THOUGHT], [None, "incomplete"]),
        ([THOUGHT, "Look", Call("weather", '{"city": "Ro', "call_a")], [None, "completed", "incomplete"]),
        (
            [Call("weather", "{}", "call_a"), Call("weather", '{"ci', "call_b", 1)],
            ["completed", "incomplete"],
        ),
    ],
    ids=["text", "refusal", "reasoning", "call", "second call"],
)
def test_last_item_of_a_cut_answer_is_incomplete(
    serve: Serve, steps: list[Any], statuses: list[str | None], reason: str
) -> None:
    served = serve(*[[*steps, End(reason)]] * 3)
    client = served.client()
    events = stream(client, "Hi", tools=[WEATHER])
    made = events[-1].response
    assert (made.status, [getattr(item, "status", None) for item in made.output]) == ("incomplete", statuses)
    assert [event.item for event in events if event.type == "response.output_item.done"] == made.output
    assert checked(client.responses.retrieve(made.id)) == made
    items = client.conversations.items.list(conversation_of(made), order="asc").data[1:]
    assert [getattr(checked_conversation_item(item), "status", None) for item in items] == statuses
    if THOUGHT not in steps:  # which the scripted model sends in streams only
        assert create(client, "Hi", tools=[WEATHER]).output[-1].status == "incomplete"  # type: ignore[union-attr]
    live = raw_stream(served, input="Hi", tools=[WEATHER])
    for number in range(-1, len(live)):
        assert raw_events(served, _id_in(live[0]), None if number < 0 else number) == live[number + 1 :]
    with client.responses.stream(response_id=_id_in(live[0])) as rest:
        rest.until_done()


# Tools that the client runs.


def test_function_calls_commit_and_their_outputs_continue(serve: Serve) -> None:
    served = serve(
        [Call("weather", '{"city": "Rome"}', "call_a"), Call("weather", "{}", "call_b", 1)], ["Warm."]
    )
    client = served.client()
    first = create(client, "Weather?", tools=[WEATHER], tool_choice={"type": "function", "name": "weather"})
    sent = served.upstream.received[-1].body
    assert sent["tools"][0]["function"]["name"] == "weather"
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert (first.tools[0].type, first.tools[0].name) == ("function", "weather")  # type: ignore[union-attr]
    one: Any = {"type": "function_call_output", "call_id": "call_a", "output": "30"}
    two: Any = {
        "type": "function_call_output",
        "call_id": "call_b",
        "output": [{"type": "input_text", "text": "5"}],
    }
    with pytest.raises(openai.BadRequestError, match="call_b") as missing:
        create(client, [one], previous_response_id=first.id)
    assert missing.value.code == "missing_tool_results"
    second = create(client, [one, two], previous_response_id=first.id)
    assert second.output_text == "Warm."
    messages = served.upstream.received[-1].body["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "tool"]
    assert [each["content"] for each in messages[2:]] == ["30", "5"]


def test_input_may_be_a_copy_of_a_history_with_calls_reasoning_and_references(serve: Serve) -> None:
    served = serve([THOUGHT, Call("weather", "{}", "call_a")], ["Warm."], ["Yes."])
    client = served.client()
    first = stream(client, "Weather?", tools=[WEATHER])[-1].response
    question: Any = {"role": "user", "content": "Weather?"}
    output: Any = {"type": "function_call_output", "call_id": "call_a", "output": "30"}
    copied: Any = [item.model_dump(exclude_unset=True) for item in first.output]
    second = create(client, [question, *copied, output])
    assert conversation_of(second) != conversation_of(first)
    roles = [each["role"] for each in served.upstream.received[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool"]
    reference: Any = {"type": "item_reference", "id": second.output[0].id}
    create(client, [question, reference, {"role": "user", "content": "Sure?"}])
    seen = [each["content"] for each in served.upstream.received[-1].body["messages"]]
    assert seen == ["Weather?", "Warm.", "Sure?"]
    client.conversations.items.delete(reference["id"], conversation_id=conversation_of(second))
    for id in ("msg_unknown", reference["id"]):
        with pytest.raises(openai.BadRequestError, match="no stored item"):
            create(client, [{"type": "item_reference", "id": id}, question])


# Not stored, in the background, cancelled, deleted.


def test_unstored_response_sees_the_history_and_leaves_nothing(serve: Serve) -> None:
    served = serve(["one"], ["two"], ["three"], ["four"])
    client = served.client()
    first = create(client, "1")
    second = create(client, "2", previous_response_id=first.id, store=False)
    assert (second.store, second.conversation, second.output_text) == (False, None, "two")  # type: ignore[attr-defined]
    seen = [each["content"] for each in served.upstream.received[-1].body["messages"]]
    assert seen == ["1", "one", "2"]
    events = stream(client, "alone", instructions="Be brief.", store=False)
    assert events[-1].response.instructions == "Be brief."
    assert [each["role"] for each in served.upstream.received[-1].body["messages"]] == ["system", "user"]
    create(client, "4", conversation=conversation_of(first), instructions="Be brief.", store=False)
    seen = [each["content"] for each in served.upstream.received[-1].body["messages"]]
    assert seen == ["Be brief.", "1", "one", "4"]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)
    assert len(served.http.get("/v1/conversations").json()["data"]) == 1
    assert len(client.conversations.items.list(conversation_of(first)).data) == 2


def test_unstored_response_sees_a_history_that_is_larger_than_a_turn_may_be(serve: Serve) -> None:
    served = serve(otherwise=["fine"], limits=Limits(turn_bytes=4_000))
    client = served.client()
    first = create(client, "1" * 3_000)
    create(client, "2" * 3_000, conversation=conversation_of(first))
    unstored = create(client, "3", conversation=conversation_of(first), store=False)
    assert unstored.output_text == "fine"
    assert len(served.upstream.received[-1].body["messages"]) == 5


def test_unstored_response_that_fails_reports_its_failure(serve: Serve) -> None:
    client = serve(["Half", CUT], [Status(429)]).client()
    assert types(stream(client, "Hi", store=False))[-1] == "failed"
    with pytest.raises(openai.RateLimitError):
        create(client, "Hi", store=False)


def test_background_response_is_queued_runs_and_is_streamed(serve: Serve, store_url: str) -> None:
    gate = Gate()
    served = serve(["one"], [gate, "two"], ["three"], store=store_url)
    client = served.client()
    first = create(client, "1")
    queued = create(client, "2", previous_response_id=first.id, background=True, instructions="Be brief.")
    assert (queued.background, queued.status) == (True, "queued")
    assert queued.instructions == "Be brief."
    served.wait_arrived(gate)
    assert checked(client.responses.retrieve(queued.id)).status == "in_progress"
    served.release(gate)
    events = checked_events(client.responses.retrieve(queued.id, stream=True))
    assert types(events)[:3] == ["created", "queued", "in_progress"]
    assert events[-1].response.output_text == "two"
    assert [each["content"] for each in served.upstream.received[-1].body["messages"]] == [
        "Be brief.",
        "1",
        "one",
        "2",
    ]
    live = stream(client, "3", background=True)
    assert types(live)[:3] == ["created", "queued", "in_progress"]
    assert checked_events(client.responses.retrieve(live[0].response.id, stream=True)) == live


def test_background_responses_after_one_response_run_side_by_side(serve: Serve) -> None:
    gates = [Gate(), Gate()]
    served = serve(["one"], *[[gate, "more"] for gate in gates])
    client = served.client()
    first = create(client, "1")
    for number in range(2):
        create(client, f"2.{number}", previous_response_id=first.id, background=True)
    for gate in gates:
        served.wait_arrived(gate)
    for gate in gates:
        served.release(gate)


def test_cancel_ends_a_running_response_and_keeps_its_beginning(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate])
    client = served.client()
    live = client.responses.create(model=MODEL, input="Hi", stream=True)
    started = [next(live) for _ in range(5)]
    id = started[0].response.id  # type: ignore[union-attr]
    cancelled = checked(client.responses.cancel(id))
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "Hel")
    last = checked_events([*started, *live])[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert checked(client.responses.retrieve(id)) == cancelled
    assert checked(client.responses.cancel(id)) == cancelled
    assert checked_events(client.responses.retrieve(id, stream=True))[-1].response == cancelled


def test_cancel_withdraws_a_queued_background_response(serve: Serve) -> None:
    gate = Gate()
    served = serve([gate, "one"], ["two"])
    client = served.client()
    running = create(client, "1", background=True)
    served.wait_arrived(gate)
    queued = create(client, "2", background=True, conversation=conversation_of(running))
    assert checked(client.responses.cancel(queued.id)).status == "cancelled"
    served.release(gate)
    assert checked_events(client.responses.retrieve(running.id, stream=True))[-1].type == "response.completed"
    assert len(served.upstream.received) == 1


def test_deleted_response_is_gone_and_its_turn_stays(serve: Serve, store_url: str) -> None:
    served = serve(["one"], ["two"], store=store_url)
    client = served.client("k")
    first = create(client, "1")
    client.responses.delete(first.id)
    for read in (client.responses.retrieve, client.responses.input_items.list, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            read(first.id)
    with pytest.raises(openai.BadRequestError):
        create(client, "2", previous_response_id=first.id)
    create(client, "2")
    assert [text for _, text in served.messages("k")] == ["1", "one", "2", "two"]
    assert served.do(served.ledger.check()) == []


def test_input_items_are_listed_in_pages_in_either_order(serve: Serve) -> None:
    client = serve(["fine"]).client()
    image: Any = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    parts: Any = [{"role": "user", "content": [{"type": "input_text", "text": "0"}, image]}]
    made = create(client, parts + [{"role": "user", "content": str(number)} for number in range(1, 5)])
    items = client.responses.input_items.list(made.id, order="asc", limit=2)
    texts = [checked_item(item).content[0].text for item in items]
    assert texts == ["0", "1", "2", "3", "4"]
    newest = client.responses.input_items.list(made.id, limit=2)
    assert [item.content[0].text for item in newest.data] == ["4", "3"]  # type: ignore[union-attr]
    assert newest.has_more


def test_input_items_continue_after_an_item_that_was_deleted_meanwhile(serve: Serve) -> None:
    client = serve(["Fine."]).client()
    made = create(client, [{"role": "user", "content": text} for text in "abc"])
    page = client.responses.input_items.list(made.id, order="asc", limit=1)
    client.conversations.items.delete(page.data[0].id, conversation_id=conversation_of(made))
    assert [item.content[0].text for item in page.get_next_page().data] == ["b"]  # type: ignore[union-attr]


def test_error_about_a_response_that_is_not_completed_names_its_status(serve: Serve) -> None:
    client = serve([CUT]).client()
    failed = stream(client, "Hi")[-1].response
    for use in (client.responses.input_items.list, client.responses.delete):
        with pytest.raises(openai.ConflictError, match="The response is failed") as refused:
            use(failed.id)
        assert refused.value.code == "response_not_completed"
    gate = Gate()
    served = serve(["a", gate])
    running = served.client().responses.create(model=MODEL, input="Hi", background=True)
    served.do(gate.arrived())
    with pytest.raises(openai.ConflictError, match="The response is in_progress"):
        served.client().responses.delete(running.id)


def test_input_tokens_are_counted_with_the_history(serve: Serve) -> None:
    client = serve(["one " * 100]).client()
    first = create(client, "1")
    alone = client.responses.input_tokens.count(model=MODEL, input="2").input_tokens
    after = client.responses.input_tokens.count(
        model=MODEL, input="2", previous_response_id=first.id, tools=[WEATHER]
    ).input_tokens
    assert 0 < alone < 100 < after


# What is refused, and what is repeated.


def _with_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [part]}]}


def _with_item(item: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": "Hi"}, item]}


_NAMED = {"type": "function", "name": "weather"}


def _with_output(output: Any) -> dict[str, Any]:
    return _with_item({"type": "function_call_output", "call_id": "c", "output": output})


Refusals: TypeAlias = dict[str, list[tuple[Any, str]]]
REFUSED_FIELDS: Refusals = {
    "unsupported_field": [
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"extra_body": {"context_management": []}}, "context_management"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"store": False, "background": True}, "background"),
        ({"input": [{"type": "web_search_call", "id": "ws"}]}, "input[0].type"),
        ({"input": [{"type": []}]}, "input[0].type"),
        ({"text": {"x": 1}}, "text.x"),
        ({"text": {"format": {"type": "json_object", "schema": {"a": 1}}}}, "text.format.schema"),
        ({"reasoning": {"budget": 9}}, "reasoning.budget"),
        ({"stream_options": {"x": False}}, "stream_options.x"),
        ({"tools": [{**WEATHER, "defer_loading": True}]}, "tools[0].defer_loading"),
        (
            {"tools": [{"type": "custom", "name": "c", "format": {"type": "text", "x": 1}}]},
            "tools[0].format.x",
        ),
        ({"tool_choice": "sometimes"}, "tool_choice"),
    ],
    "unsupported_tool": [
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]"),
    ],
    "mutually_exclusive": [
        ({"conversation": "conv_x", "previous_response_id": "resp_x"}, "previous_response_id")
    ],
    "invalid_body": [
        ({"conversation": "mine"}, "conversation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"reasoning": {"summary": {}}}, "reasoning.summary"),
        ({"text": {"verbosity": 1}}, "text.verbosity"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "weather"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "time"}, "tools": [WEATHER]}, "tool_choice"),
        ({"tool_choice": {"type": "custom", "name": "weather"}, "tools": [WEATHER]}, "tool_choice"),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [_NAMED, {"type": "function", "name": "time"}],
                },
                "tools": [WEATHER],
            },
            "tool_choice.tools[1]",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [_NAMED]}, "tools": [WEATHER]},
            "tool_choice.mode",
        ),
        ({"temperature": 99}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 7}, "top_p"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"extra_body": {"frequency_penalty": -2.5}}, "frequency_penalty"),
        ({"extra_body": {"presence_penalty": "high"}}, "presence_penalty"),
        ({"tools": [{**WEATHER, "parameters": 5}]}, "tools[0].parameters"),
        ({"tools": [{**WEATHER, "strict": "yes"}]}, "tools[0].strict"),
        ({"tools": [{**WEATHER, "description": 5}]}, "tools[0].description"),
        ({"tools": [{"type": "custom", "name": "c", "format": 5}]}, "tools[0].format"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": {}, "strict": "yes"}}},
            "text.format.strict",
        ),
        ({"metadata": {"a": 1}}, "metadata"),
    ],
    "no_new_input": [
        ({"input": []}, "input"),
        ({"input": [{"role": "assistant", "content": "Hm"}]}, "input"),
    ],
    "malformed_items": [
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "1"}]}, "input")
    ],
    "invalid_input": [({"metadata": {"a": "x" * 513}}, "metadata")],
    "invalid_id": [({"conversation": "conv_x"}, "conversation")],
}
REFUSED_PARTS: Refusals = {
    "unsupported_field": [
        ({"type": {}}, "type"),
        ({"type": "input_image", "file_id": "f"}, "file_id"),
        ({"type": "refusal", "text": "No"}, "text"),
        ({"type": "input_text", "text": "a", "x": 1}, "x"),
        ({"type": "input_text", "text": "a", "x": False}, "x"),
        ({"type": "input_file", "file_url": "http://x"}, "file_url"),
    ],
    "invalid_body": [
        ({"type": "input_image"}, "image_url"),
        ({"type": "input_image", "image_url": ""}, "image_url"),
        ({"type": "input_text"}, "text"),
        ({"type": "input_text", "text": None}, "text"),
        ({"type": "output_text", "annotations": []}, "text"),
        ({"type": "refusal"}, "refusal"),
        ({"type": "input_file", "filename": "a"}, "file_data"),
        ({"type": "input_audio"}, "input_audio.data"),
        ({"type": "input_audio", "input_audio": {"data": "x"}}, "input_audio.format"),
    ],
}
"""In the content of a message."""
REFUSED_ITEMS: Refusals = {
    "unsupported_field": [
        ({"type": "message", "role": "user", "content": "Hi", "x": 1}, "x"),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "namespace": "n"},
            "namespace",
        ),
        ({"type": "item_reference", "id": "msg_x", "x": 1}, "x"),
    ],
    "invalid_body": [
        ({"type": "reasoning", "summary": [{"type": "summary_text"}]}, "summary[0].text"),
        ({"role": "user", "content": "Hi", "status": "weird"}, "status"),
    ],
}
"""After a message."""
REFUSED_OUTPUTS: Refusals = {
    "unsupported_field": [([{"type": "x"}], "output[0].type")],
    "invalid_body": [
        ([{"type": "input_text"}], "output[0].text"),
        ({"a": 1}, "output"),
    ],
}
"""Of a call."""


def refusals() -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the fields of each request that is refused, the code, and the place that the error names."""
    for refused, embed, place in (
        (REFUSED_FIELDS, dict, ""),
        (REFUSED_PARTS, _with_part, "input[0].content[0]."),
        (REFUSED_ITEMS, _with_item, "input[1]."),
        (REFUSED_OUTPUTS, _with_output, "input[1]."),
    ):
        for code, cases in refused.items():
            for case, name in cases:
                yield embed(case), code, place + name


@pytest.mark.parametrize(("fields", "code", "param"), list(refusals()), ids=str)
def test_request_that_cannot_be_honoured_is_refused_by_name_and_stores_nothing(
    serve: Serve, fields: dict[str, Any], code: str, param: str | None
) -> None:
    served = serve(["never"])
    client = served.client()
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**{"model": MODEL, "input": "Hi", **fields})
    assert refused.value.code == code
    assert refused.value.param == param
    assert not served.upstream.received
    assert served.http.get("/v1/conversations").json()["data"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 2, "top_p": 1, "extra_body": {"frequency_penalty": -2, "presence_penalty": 2}},
        {"temperature": 0, "top_p": 0, "top_logprobs": 0, "max_tool_calls": 1},
        {"tool_choice": "auto"},
        {"tool_choice": "none", "tools": []},
        {"tools": [{**WEATHER, "defer_loading": False, "allowed_callers": None, "output_schema": None}]},
        {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [_NAMED]}},
        {"stream_options": {"include_obfuscation": False}},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}, "reasoning": {"generate_summary": "auto"}},
        _with_part({"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit"}}),
        {
            "input": [
                {"role": "assistant", "content": "Hm", "phase": "commentary"},
                {"role": "user", "content": "?"},
            ]
        },
    ],
    ids=str,
)
def test_request_at_the_limits_of_its_values_is_answered(serve: Serve, fields: dict[str, Any]) -> None:
    client = serve(["Fine."]).client()
    made = client.responses.create(**{"model": MODEL, "input": "Hi", **fields})
    assert checked(made).output_text == "Fine."


def test_fields_of_items_of_other_servers_are_accepted_if_they_change_nothing(serve: Serve) -> None:
    served = serve(["Fine."])
    client = served.client()
    input: Any = [
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA", "status": None},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c",
            "name": "weather",
            "arguments": "{}",
            "async": False,
            "caller": {"type": "direct"},
            "namespace": None,
            "created_by": "agent",
        },
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": "30",
            "name": "weather",
            "status": "completed",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "phase": "final_answer",
            "content": [{"type": "output_text", "text": "Warm.", "annotations": [], "logprobs": None}],
        },
        {"role": "user", "content": "Sure?"},
    ]
    made = create(client, input)
    seen = served.upstream.received[-1].body["messages"]
    assert [each["role"] for each in seen] == ["user", "assistant", "tool", "assistant", "user"]
    for item in client.responses.input_items.list(made.id):
        checked_item(item)


def test_parts_reach_the_model_without_empty_fields_and_hints(serve: Serve) -> None:
    served = serve(["Fine."])
    parts = [
        {"type": "input_image", "image_url": "data:,x", "file_id": None, "detail": None},
        {
            "type": "input_file",
            "file_data": "data:,x",
            "filename": "a.txt",
            "file_url": None,
            "detail": "auto",
        },
        {"type": "input_text", "text": "", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ]
    create(served.client(), [{"role": "user", "content": parts}])
    assert served.upstream.received[-1].body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:,x"}},
        {"type": "file", "file": {"file_data": "data:,x", "filename": "a.txt"}},
        {"type": "text", "text": ""},
    ]


class Sky(BaseModel):
    clouds: int


DUMPS: dict[str, Callable[[Any], Any]] = {
    "object": lambda item: item,
    "model_dump": lambda item: item.model_dump(),
    "by alias": lambda item: item.model_dump(by_alias=True),
    "set fields": lambda item: item.model_dump(exclude_unset=True),  # as openai-agents sends them
    "no nulls": lambda item: item.model_dump(exclude_none=True),
    "json": lambda item: item.model_dump(mode="json"),
    "to_dict": lambda item: item.to_dict(),
}


@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
@pytest.mark.parametrize("source", ["streamed", "parsed", "read", "conversation", "input items"])
def test_items_of_responses_can_be_sent_back_in_every_form(
    serve: Serve, source: str, dump: Callable[[Any], Any]
) -> None:
    calls = [Call("weather", '{"clouds": 1}', "call_a"), CUSTOM]
    declined = Data(b'{"choices":[{"delta":{"refusal":"No."}}]}')
    served = serve([THOUGHT, '{"clouds": 2}', *calls], [declined], ["Fine."], ["Fine."])
    client = served.client()
    custom: Any = {"type": "custom", "name": "raw"}
    results: Any = [
        {"type": "function_call_output", "call_id": "call_a", "output": "30"},
        {"type": "custom_tool_call_output", "call_id": "call_b", "output": "40"},
    ]
    question: Any = {"role": "user", "content": "Weather?"}
    terms: Any = {
        "model": MODEL,
        "tools": [{**WEATHER, "strict": True}, custom],
        "reasoning": {"summary": "auto"},
    }

    def ask(input: Any, **where: Any) -> Any:
        parsed: Any = {"text_format": Sky} if source == "parsed" else {}
        with client.responses.stream(input=input, **terms, **where, **parsed) as events:
            return events.get_final_response()

    first = ask([question])
    second = ask(results, previous_response_id=first.id)
    items: list[Any] = [question, *first.output, *results, *second.output]
    if source == "read":
        read = [client.responses.retrieve(each.id).output for each in (first, second)]
        items = [question, *read[0], *results, *read[1]]
    elif source == "conversation":
        items = list(client.conversations.items.list(conversation_of(first), order="asc"))
    elif source == "input items":
        copied = client.responses.create(input=[*items, question], **terms)
        items = list(client.responses.input_items.list(copied.id, order="asc"))[:-1]
    kinds = [
        each["type"] if isinstance(each, dict) and "type" in each else getattr(each, "type", "message")
        for each in items
    ]
    assert kinds == [
        *("message", "reasoning", "message", "function_call", "custom_tool_call"),
        *("function_call_output", "custom_tool_call_output", "message"),
    ]
    sent = [each if isinstance(each, dict) else dump(each) for each in items]
    again = client.responses.create(input=[*sent, {"role": "user", "content": "Sure?"}], **terms)
    assert again.output_text == "Fine."
    seen = served.upstream.received[-1].body["messages"]
    assert [each["role"] for each in seen] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [each["content"] for each in seen if each["role"] == "tool"] == ["30", "40"]
    assert len(seen[1]["tool_calls"]) == 2
    added = client.conversations.create(items=sent)
    assert len(list(client.conversations.items.list(added.id))) == len(sent)


@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        ("/v1/conversations", {"limit": "0"}, "limit"),
        ("/v1/conversations", {"limit": "many"}, "limit"),
        ("/v1/conversations", {"order": "up"}, "order"),
        ("/v1/conversations", {"after": UNKNOWN}, "after"),
        ("/v1/conversations/{conversation}/items", {"limit": "101"}, "limit"),
        ("/v1/conversations/{conversation}/items", {"after": "msg_x"}, "after"),
        ("/v1/responses/{response}/input_items", {"order": ""}, "order"),
        ("/v1/responses/{response}/input_items", {"after": "msg_x"}, "after"),
        ("/v1/responses/{response}", {"stream": "yes"}, "stream"),
        ("/v1/responses/{response}", {"stream": "true", "starting_after": "-1"}, "starting_after"),
        ("/v1/responses/{response}", {"starting_after": "1"}, "starting_after"),
        ("/api/chats", {"limit": "0"}, "limit"),
        ("/api/chats", {"cursor": "x"}, "cursor"),
    ],
    ids=str,
)
def test_error_about_a_query_parameter_names_it(
    serve: Serve, path: str, query: dict[str, str], param: str
) -> None:
    served = serve(["Hello"])
    made = create(served.client(), "Hi")
    answer = served.http.get(path.format(conversation=conversation_of(made), response=made.id), params=query)
    assert answer.status_code == (404 if param == "after" else 400)
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"input": " "}, "input"),
        (
            "/v1/responses",
            {"input": "Hi", "stream": True, "previous_response_id": "x"},
            "previous_response_id",
        ),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": " "}]}, "messages"),
        ("/v1/chat/completions", {"messages": "Hi"}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "n": 2}, "n"),
        ("/api/turns", {"input": " "}, "input"),
        ("/api/turns", {"input": {"type": "function_call_output", "call_id": "c", "output": ""}}, "input"),
    ],
    ids=str,
)
def test_error_about_new_input_names_its_field_in_every_api(
    serve: Serve, path: str, body: dict[str, Any], param: str
) -> None:
    served = serve()
    headers = {} if "previous_response_id" in body or path == "/api/turns" else {"X-Conversation-Id": "k"}
    answer = served.http.post(path, json={"model": MODEL, **body}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_error_about_a_continued_conversation_names_the_field(serve: Serve) -> None:
    served = serve(["Hello"])
    client = served.client()
    made = create(client, "Hi")
    client.conversations.delete(conversation_of(made))
    gone: list[tuple[dict[str, Any], str]] = [
        ({"conversation": conversation_of(made)}, "conversation"),
        ({"conversation": {"id": UNKNOWN}}, "conversation"),
        ({"previous_response_id": made.id}, "previous_response_id"),
    ]
    for fields, param in gone:
        for use in (client.responses.create, client.responses.input_tokens.count):
            with pytest.raises(openai.APIStatusError) as refused:
                use(model=MODEL, input="Hi", **fields)
            assert refused.value.status_code in (404, 410)
            assert refused.value.param == param  # type: ignore[attr-defined]


def test_hints_are_accepted_and_reach_no_model(serve: Serve) -> None:
    served = serve(["fine"])
    made = create(
        served.client(),
        "Hi",
        safety_identifier="s",
        prompt_cache_key="p",
        include=["reasoning.encrypted_content"],
        service_tier="auto",
        truncation="disabled",
        max_tool_calls=3,
        parallel_tool_calls=False,
    )
    assert (made.safety_identifier, made.prompt_cache_key, made.max_tool_calls) == ("s", "p", 3)
    assert served.upstream.received[-1].body.keys() == {"model", "messages", "stream"}


def test_compaction_is_refused_by_name(serve: Serve) -> None:
    with pytest.raises(openai.BadRequestError, match="compact"):
        serve().client().responses.compact(model=MODEL)


def test_retry_of_an_unnamed_request_whose_connection_broke_joins_its_response(serve: Serve) -> None:
    gate = Gate()
    served = serve([gate, "one"], ["never"])
    body = {"model": MODEL, "input": "Hi", "stream": True}
    with served.http.stream("POST", "/v1/responses", json=body, headers={"X-Stainless-Retry-Count": "0"}):
        served.wait_arrived(gate)
    served.wait_alone()
    served.release(gate)
    retry = served.http.post("/v1/responses", json=body, headers={"X-Stainless-Retry-Count": "1"})
    assert '"delta":"one"' in retry.text
    assert len(served.http.get("/v1/conversations").json()["data"]) == 1


def test_retry_of_a_response_on_a_side_branch_whose_connection_broke_joins_it(serve: Serve) -> None:
    gate = Gate()
    served = serve(["one"], ["two"], [gate, "three"], ["never"])
    with served.client() as client:
        first = create(client, "1")
        create(client, "2", previous_response_id=first.id)
    body = {"model": MODEL, "input": "3", "previous_response_id": first.id, "stream": True}
    with served.http.stream("POST", "/v1/responses", json=body, headers={"X-Stainless-Retry-Count": "0"}):
        served.wait_arrived(gate)
    served.wait_alone()
    served.release(gate)
    served.wait_until(lambda: not served.ledger._process.running)
    retry = served.http.post("/v1/responses", json=body, headers={"X-Stainless-Retry-Count": "1"})
    assert '"delta":"three"' in retry.text
    assert len(served.upstream.received) == 3


def test_request_with_an_idempotency_key_is_answered_once(serve: Serve) -> None:
    served = serve(["one"])
    client = served.client(Idempotency_Key="k")
    first = create(client, "Hi")
    assert create(client, "Hi") == first
    assert stream(client, "Hi")[-1].response == first
    with pytest.raises(openai.UnprocessableEntityError):
        create(client, "Else")
    with pytest.raises(openai.BadRequestError, match="Idempotency-Key"):
        create(client, "Hi", store=False)
    assert len(served.upstream.received) == 1


def test_busy_conversation_queues_responses_or_rejects_them(
    serve: Serve, threads: ThreadPoolExecutor
) -> None:
    gate = Gate()
    served = serve([gate, "one"], ["two"])
    client = served.client("k")
    first = threads.submit(create, client, "1")
    served.wait_arrived(gate)
    with pytest.raises(openai.ConflictError):
        create(served.client("k", X_Turn_On_Busy="reject"), "2")
    second = threads.submit(create, client, "2")
    served.wait_queued("k")
    served.release(gate)
    assert (first.result().output_text, second.result().output_text) == ("one", "two")


def test_conversation_named_by_another_header_is_found_by_its_id_and_by_its_key(serve: Serve) -> None:
    named = Settings(port=0, grace=0.0, chats=ChatSettings(named_by=("X-My-Chat",)))
    served = serve(otherwise=["fine"], settings=named)
    first = create(served.client(), "1")
    second = create(served.client(X_My_Chat=conversation_of(first)), "2")
    assert conversation_of(second) == conversation_of(first)
    mine = [create(served.client(X_My_Chat="mine"), text) for text in ("1", "2")]
    assert conversation_of(mine[0]) == conversation_of(mine[1])


# One history.


def test_turn_of_chat_completions_is_a_response_that_can_be_read_streamed_and_continued(serve: Serve) -> None:
    served = serve(["Hello"], ["again"])
    client = served.client("k")
    send_whole(client, "Hi")
    [turn] = served.chat_json("k")["turns"]
    id = "resp_" + turn["id"].removeprefix("turn_")
    read = checked(client.responses.retrieve(turn["id"]))
    assert (read.id, read.output_text, read.model) == (id, "Hello", MODEL)
    events = checked_events(client.responses.retrieve(id, stream=True))
    assert events[-1].response == read
    create(served.client(), "More", previous_response_id=id)
    assert [text for _, text in served.messages("k")] == ["Hi", "Hello", "More", "again"]
