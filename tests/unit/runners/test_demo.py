"""The demo model: commands that produce every kind of answer and failure, from the messages alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from tests.unit.runners.conftest import Waits
from turnledger import Chat
from turnledger.errors import MalformedAnswer, ModelError, ModelRefused, ModelTimeout, ModelUnavailable
from turnledger.model.messages.messages import Message
from turnledger.runners.chat_model import ChatModel, ModelRequest
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.demo import HELP, MARKDOWN, DemoAnswer, DemoModel, Ending, answer_to

TOOLS = [
    {"type": "function", "function": {"name": "weather"}},
    {"type": "custom", "custom": {"name": "shell"}},
]
CALL = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def part(*messages: Message | str, tools: Any = None) -> DemoAnswer:
    listed = [user(each) if isinstance(each, str) else each for each in messages]
    return answer_to(ModelRequest(listed, {"tools": tools} if tools else {}))


def text(found: DemoAnswer, field: str = "content") -> str:
    return "".join(delta.get(field, "") for delta in found.deltas)


def test_demo_answer_quotes_the_message_and_counts_the_earlier_ones() -> None:
    answer = {"role": "assistant", "content": "ok"}
    assert text(part("Hello")) == 'You said "Hello". I remember nothing before that.'
    assert text(part("Hello", answer, "And?")) == (
        'You said "And?". I remember 1 message from you before that, the last one "Hello".'
    )
    assert "I remember 2 messages from you" in text(part("a", "b", "c"))
    assert text(part({"role": "system", "content": "Be brief."})) == "There is no message from you."


def test_demo_answer_is_streamed_word_by_word() -> None:
    assert [delta["content"] for delta in part("/count 3").deltas] == ["1", " 2", " 3"]


def test_demo_answer_shortens_the_text_it_quotes() -> None:
    assert 'You said "a b".' in text(part(" a\n\n b"))
    assert f'"{"x" * 79}…"' in text(part("x" * 81))


def test_demo_answer_names_content_parts_that_are_not_text() -> None:
    content = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "http://a"}}, 7]
    assert 'You said "See [image_url] [None]".' in text(part({"role": "user", "content": content}))


def test_demo_answer_quotes_tool_results() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "y"}]}
    results = [{"role": "tool", "tool_call_id": each, "content": f"sunny {each}"} for each in "xy"]
    found = part("/call weather", calls, *results)
    assert text(found) == 'The tool returned "sunny x", "sunny y". I remember 1 message from you.'


@pytest.mark.parametrize("given", [TOOLS, msgspec.Raw(msgspec.json.encode(TOOLS))])
def test_demo_call_command_calls_function_and_custom_tools(given: Any) -> None:
    found = part('/call weather {"city": "Rome"}\n/call shell ls -l', tools=given)
    assert found.finish_reason == "tool_calls"
    assert [delta["tool_calls"][0] for delta in found.deltas] == [
        {
            "index": 0,
            "id": "call_demo_0",
            "type": "function",
            "function": {"name": "weather", "arguments": ""},
        },
        {"index": 0, "function": {"arguments": '{"city": "Rome"}'}},
        {"index": 1, "id": "call_demo_1", "type": "custom", "custom": {"name": "shell", "input": ""}},
        {"index": 1, "custom": {"input": "ls -l"}},
    ]


def test_demo_call_ids_are_unique_within_a_conversation() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "x", "content": ""}
    found = part("/call weather", calls, result, "/call weather", tools=TOOLS)
    assert found.deltas[0]["tool_calls"][0]["id"] == "call_demo_1"
    assert found.deltas[1]["tool_calls"][0]["function"] == {"arguments": "{}"}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("/call", "Give the tool to call"),
        ("/call nothing", "Unknown tool nothing. Tools of this request: weather, shell."),
        ("/call weather Rome", "must be a JSON object"),
        ("/call weather [1]", "must be a JSON object"),
        ("/dance", "Unknown command /dance."),
        ("/count", "Unknown command /count."),
        ("/help", HELP),
        ("  /help  ", HELP),
        ("/markdown", MARKDOWN),
        ("/count 0", "0"),
        ("/slow", 'You said "/slow".'),
        ("and /help", 'You said "and /help".'),
        ("/", 'You said "/".'),
        ("/etc/passwd", "Unknown command /etc."),
    ],
)
def test_demo_command_that_cannot_run_is_answered_with_the_reason(question: str, answer: str) -> None:
    found = part(question, tools=TOOLS)
    assert answer in text(found)
    assert (found.finish_reason, found.ending) == ("stop", Ending.WELL)


def test_demo_think_command_sends_reasoning_before_the_text() -> None:
    found = part("Hi", {"role": "assistant", "content": "Hello."}, "/think hard")
    thought = [delta["reasoning_content"] for delta in found.deltas if "reasoning_content" in delta]
    assert "there are 2, 1 of them from the user" in "".join(thought)
    assert all("content" in delta for delta in found.deltas[len(thought) :])
    assert text(found).startswith('You said "/think hard".')


@pytest.mark.parametrize(
    ("question", "words", "ending"),
    [
        ("/fail", 0, Ending.FAILS),
        ("/fail after 3", 3, Ending.FAILS),
        ("/fail   after   3 words", 3, Ending.FAILS),
        ("/fail after 999999999", 9, Ending.FAILS),
        ("/stall", 0, Ending.STALLS),
        ("/stall after 2", 2, Ending.STALLS),
        ("/cut", 0, Ending.CUT),
        ("/cut after 1", 1, Ending.CUT),
    ],
)
def test_demo_fail_stall_and_cut_commands_end_after_the_given_words(
    question: str, words: int, ending: Ending
) -> None:
    found = part(question)
    assert (min(len(found.deltas), 9), found.ending) == (words, ending)


def test_demo_length_command_ends_with_finish_reason_length() -> None:
    found = part("/length")
    assert found.finish_reason == "length"
    assert text(part("Hello")).startswith("You said")
    assert text(found) == 'You said "/length". I'


def test_demo_refuse_command_answers_with_a_refusal() -> None:
    found = part("/refuse")
    assert text(found) == ""
    assert text(found, "refusal") == "I refuse to answer, as requested."


def test_demo_slow_command_marks_the_answer_as_slow() -> None:
    assert part("/slow Hello").is_slow
    failing = part("/slow /fail after 2")
    assert (failing.is_slow, failing.ending, len(failing.deltas)) == (True, Ending.FAILS, 2)
    assert part("/slow " * 5_000 + "/fail").ending is Ending.WELL
    assert not part("Hello").is_slow


def test_demo_usage_counts_words_as_tokens() -> None:
    assert part("one two", "/count 3").usage == {
        "prompt_tokens": 4,
        "completion_tokens": 3,
        "total_tokens": 7,
    }


def test_demo_count_command_stops_at_10000() -> None:
    assert len(part("/count 999999999").deltas) == 10_000


@pytest.mark.parametrize("messages", [b"{}", b"[1]", b'[{"role": "king", "content": ""}]', b'"Hi"', b"null"])
def test_demo_model_refuses_malformed_messages_with_400(messages: bytes) -> None:
    with pytest.raises(ModelRefused, match="messages") as caught:
        answer_to(ModelRequest(msgspec.Raw(messages)))
    assert (caught.value.status, caught.value.error["param"]) == (400, "messages")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["role", "content", "tool_calls", "name", "type", "text", "function"])
ROLES = st.sampled_from(["user", "assistant", "tool", "system"])


@repeatable
@given(
    st.lists(st.dictionaries(FIELDS, JSON | ROLES), max_size=4) | JSON,
    JSON | st.lists(st.dictionaries(FIELDS, JSON), max_size=4),
)
def test_demo_model_answers_or_refuses_any_request(messages: Any, tools: Any) -> None:
    try:
        found = answer_to(ModelRequest(msgspec.Raw(msgspec.json.encode(messages)), {"tools": tools}))
    except ModelRefused:
        return
    assert found.deltas


WEATHER_TOOL = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


@pytest.fixture
def model(waits: Waits) -> DemoModel:
    return DemoModel(pace=0.125, sleep=waits, now=lambda: 7.5)


def make_request(text: str, options: Any = None, **settings: Any) -> ModelRequest:
    return ModelRequest([{"role": "user", "content": text}], settings, options)


async def chunks(model: ChatModel, request: ModelRequest) -> list[Any]:
    async with model.stream(request) as batches:
        return [msgspec.json.decode(payload) async for batch in batches for payload in batch]


async def test_demo_stream_chunks_have_the_shape_of_chat_completion_chunks(model: DemoModel) -> None:
    first, *words, last = await chunks(model, make_request("/count 2", model="any"))
    shared = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 7, "model": "any"}
    assert first == {
        **shared,
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
    }
    assert [each["choices"][0]["delta"] for each in words] == [{"content": "1"}, {"content": " 2"}]
    assert last == {**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


async def test_demo_completion_has_the_shape_of_a_chat_completion(model: DemoModel) -> None:
    whole = msgspec.json.decode(await model.complete(make_request("/count 2")))
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
async def test_demo_stream_sends_usage_last_when_requested(model: DemoModel, options: Any) -> None:
    *others, last = await chunks(model, make_request("/count 2", options))
    assert [each["usage"] for each in others] == [None] * 4  # null until then, as OpenAI's
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}


async def test_demo_stream_without_the_usage_option_has_no_usage(model: DemoModel) -> None:
    assert [each for each in await chunks(model, make_request("/count 2")) if "usage" in each] == []


async def test_demo_words_are_paced_and_slower_after_the_slow_command(model: DemoModel, waits: Waits) -> None:
    await chunks(model, make_request("/count 3"))
    assert waits == [0.125] * 3
    waits.clear()
    await chunks(model, make_request("/slow"))
    assert set(waits) == {0.5}
    waits.clear()
    await model.complete(make_request("/slow"))
    assert waits == [0.5 * 8]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("/fail", ModelUnavailable, ""),
        ("/fail after 2", ModelUnavailable, "You said"),
        ("/stall", ModelTimeout, ""),
        ("/stall after 1", ModelTimeout, "You"),
        ("/cut", MalformedAnswer, ""),
        ("/cut after 2", MalformedAnswer, "You said"),
    ],
)
async def test_demo_turn_that_fails_leaves_no_trace_in_the_next_answer(
    chat: Chat, model: DemoModel, words: str, error: type[ModelError], message: str, stream: bool
) -> None:
    await chat.run(ChatRunner(model, {}, stream=stream), "Hello")
    with pytest.raises(error):
        await chat.run(ChatRunner(model, {}, stream=stream), words)
    assert (await chat.attempts())[0].attempt.partial == (message if stream else "")
    turn = await chat.run(ChatRunner(model, {}, stream=stream), "And now?")
    assert (
        turn.text == 'You said "And now?". I remember 1 message from you before that, the last one "Hello".'
    )


async def test_demo_fail_command_without_words_raises_before_the_stream_begins(model: DemoModel) -> None:
    with pytest.raises(ModelUnavailable, match="as requested"):
        async with model.stream(make_request("/fail")):
            pytest.fail("it must not begin")


async def test_demo_stall_command_times_out_after_the_patience_of_the_model(waits: Waits) -> None:
    model = DemoModel(pace=0, patience=9.0, sleep=waits)
    with pytest.raises(ModelTimeout):
        await chunks(model, make_request("/stall after 2"))
    assert waits == [0, 0, 9.0]


@pytest.mark.parametrize("stream", [True, False])
async def test_demo_tool_call_and_its_result_are_run_as_two_turns(
    chat: Chat, model: DemoModel, stream: bool
) -> None:
    def runner() -> ChatRunner:
        return ChatRunner(model, {"tools": WEATHER_TOOL}, stream=stream)

    turn = await chat.run(runner(), '/call weather {"city": "Rome"}')
    [call] = turn.output
    assert (call.call_id, call.fields["arguments"]) == ("call_demo_0", '{"city": "Rome"}')
    assert turn.details["finish_reason"] == "tool_calls"
    result = {"type": "function_call_output", "call_id": "call_demo_0", "output": "sunny"}
    turn = await chat.run(runner(), [result])
    assert turn.text == 'The tool returned "sunny". I remember 1 message from you.'


@pytest.mark.parametrize("stream", [True, False])
async def test_demo_refuse_and_length_commands_are_stored_by_a_runner(
    chat: Chat, model: DemoModel, stream: bool
) -> None:
    refused = await chat.run(ChatRunner(model, {}, stream=stream), "/refuse")
    assert refused.output[0].fields["content"][0]["type"] == "refusal"
    cut_short = await chat.run(ChatRunner(model, {}, stream=stream), "/length")
    assert cut_short.details["finish_reason"] == "length"


async def test_demo_stream_left_early_ends(model: DemoModel) -> None:
    async with model.stream(make_request("Hello")) as batches:
        async for _ in batches:
            break
    with pytest.raises(StopAsyncIteration):
        await anext(batches)


async def test_demo_model_lists_one_model(model: DemoModel) -> None:
    assert [each["id"] for each in await model.models()] == ["demo"]
    await model.close()
