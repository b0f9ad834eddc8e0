"""The demo model does on command what real models do unasked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.runners.conftest import Waits
from turnledger import Chat
from turnledger.errors import MalformedAnswer, ModelError, ModelTimeout, ModelUnavailable
from turnledger.runners.chat_model import ChatModel, ModelRequest
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.demo import DemoModel

pytestmark = pytest.mark.anyio

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


@pytest.fixture
def model(waits: Waits) -> DemoModel:
    return DemoModel(pace=0.125, sleep=waits, now=lambda: 7.5)


def asked(text: str, options: Any = None, **settings: Any) -> ModelRequest:
    return ModelRequest([{"role": "user", "content": text}], settings, options)


async def chunks(model: ChatModel, request: ModelRequest) -> list[Any]:
    async with model.stream(request) as batches:
        return [msgspec.json.decode(payload) async for batch in batches for payload in batch]


async def test_a_stream_has_the_shape_of_one(model: DemoModel) -> None:
    first, *words, last = await chunks(model, asked("/count 2", model="any"))
    shared = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 7, "model": "any"}
    assert first == {
        **shared,
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
    }
    assert [each["choices"][0]["delta"] for each in words] == [{"content": "1"}, {"content": " 2"}]
    assert last == {**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


async def test_a_whole_answer_has_the_shape_of_one(model: DemoModel) -> None:
    whole = msgspec.json.decode(await model.complete(asked("/count 2")))
    assert whole == {
        "id": "chatcmpl-demo",
        "object": "chat.completion",
        "created": 7,
        "model": "demo",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "1 2"}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4},
    }


@pytest.mark.parametrize("options", [{"include_usage": True}, msgspec.Raw(b'{"include_usage": true}')])
async def test_usage_comes_last_when_it_is_asked_for(model: DemoModel, options: Any) -> None:
    *others, last = await chunks(model, asked("/count 2", options))
    assert [each["usage"] for each in others] == [None] * 4  # null until then, as OpenAI's
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}


async def test_usage_is_not_mentioned_where_nobody_asked_for_it(model: DemoModel) -> None:
    assert [each for each in await chunks(model, asked("/count 2")) if "usage" in each] == []


async def test_words_come_at_a_pace(model: DemoModel, waits: Waits) -> None:
    await chunks(model, asked("/count 3"))
    assert waits == [0.125] * 3
    waits.clear()
    await chunks(model, asked("/slow"))
    assert set(waits) == {0.5}
    waits.clear()
    await model.complete(asked("/slow"))
    assert waits == [0.5 * 8]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ("/fail", ModelUnavailable, ""),
        ("/fail after 2", ModelUnavailable, "You said"),
        ("/stall", ModelTimeout, ""),
        ("/stall after 1", ModelTimeout, "You"),
        ("/cut", MalformedAnswer, ""),
        ("/cut after 2", MalformedAnswer, "You said"),
    ],
)
async def test_a_turn_that_fails_vanishes(
    chat: Chat, model: DemoModel, words: str, error: type[ModelError], told: str, stream: bool
) -> None:
    await chat.run(ChatRunner(model, {}, stream=stream), "Hello")
    with pytest.raises(error):
        await chat.run(ChatRunner(model, {}, stream=stream), words)
    assert (await chat.attempts())[0].attempt.partial == (told if stream else "")
    turn = await chat.run(ChatRunner(model, {}, stream=stream), "And now?")
    assert (
        turn.text == 'You said "And now?". I remember 1 message of yours before that, the last one "Hello".'
    )


async def test_a_failure_at_once_comes_before_anything_is_said(model: DemoModel) -> None:
    with pytest.raises(ModelUnavailable, match="as it was asked to"):
        async with model.stream(asked("/fail")):
            pytest.fail("it must not begin")


async def test_a_stall_lasts_as_long_as_its_patience(waits: Waits) -> None:
    model = DemoModel(pace=0, patience=9.0, sleep=waits)
    with pytest.raises(ModelTimeout):
        await chunks(model, asked("/stall after 2"))
    assert waits == [0, 0, 9.0]


@pytest.mark.parametrize("stream", [True, False])
async def test_it_calls_tools_and_hears_their_results(chat: Chat, model: DemoModel, stream: bool) -> None:
    def runner() -> ChatRunner:
        return ChatRunner(model, {"tools": TOOLS}, stream=stream)

    turn = await chat.run(runner(), '/call weather {"city": "Rome"}')
    [call] = turn.output
    assert (call.call_id, call.fields["arguments"]) == ("call_demo_0", '{"city": "Rome"}')
    assert turn.details["finish_reason"] == "tool_calls"
    result = {"type": "function_call_output", "call_id": "call_demo_0", "output": "sunny"}
    turn = await chat.run(runner(), [result])
    assert turn.text == 'The tool answered "sunny". I remember 1 message of yours.'


@pytest.mark.parametrize("stream", [True, False])
async def test_it_refuses_and_runs_out_of_room(chat: Chat, model: DemoModel, stream: bool) -> None:
    refused = await chat.run(ChatRunner(model, {}, stream=stream), "/refuse")
    assert refused.output[0].fields["content"][0]["type"] == "refusal"
    cut_short = await chat.run(ChatRunner(model, {}, stream=stream), "/length")
    assert cut_short.details["finish_reason"] == "length"


async def test_leaving_a_stream_early_is_no_matter(model: DemoModel) -> None:
    async with model.stream(asked("Hello")) as batches:
        async for _ in batches:
            break
    with pytest.raises(StopAsyncIteration):
        await anext(batches)


async def test_there_is_one_model(model: DemoModel) -> None:
    kind: ChatModel = model
    assert [each["id"] for each in await kind.models()] == ["demo"]
    await kind.close()
