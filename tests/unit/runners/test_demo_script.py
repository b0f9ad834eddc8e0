"""The part that the demo model plays is wholly decided by what it is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.errors import ModelRefused
from turnledger.model.messages.messages import Message
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import HELP, MARKDOWN, Ending, Part, part_of

TOOLS = [
    {"type": "function", "function": {"name": "weather"}},
    {"type": "custom", "custom": {"name": "shell"}},
]
CALL = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def part(*messages: Message | str, tools: Any = None) -> Part:
    listed = [user(each) if isinstance(each, str) else each for each in messages]
    return part_of(ModelRequest(listed, {"tools": tools} if tools else {}))


def text(found: Part, field: str = "content") -> str:
    return "".join(delta.get(field, "") for delta in found.deltas)


def test_it_says_what_it_was_asked_and_what_it_remembers() -> None:
    answer = {"role": "assistant", "content": "ok"}
    assert text(part("Hello")) == 'You said "Hello". I remember nothing before that.'
    assert text(part("Hello", answer, "And?")) == (
        'You said "And?". I remember 1 message of yours before that, the last one "Hello".'
    )
    assert "I remember 2 messages of yours" in text(part("a", "b", "c"))
    assert text(part({"role": "system", "content": "Be brief."})) == "You said nothing."


def test_it_says_it_word_by_word() -> None:
    assert [delta["content"] for delta in part("/count 3").deltas] == ["1", " 2", " 3"]


def test_long_and_wide_texts_are_quoted_shortly() -> None:
    assert 'You said "a b".' in text(part(" a\n\n b"))
    assert f'"{"x" * 79}…"' in text(part("x" * 81))


def test_parts_are_named_where_they_are_no_text() -> None:
    content = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "http://a"}}, 7]
    assert 'You said "See [image_url] [None]".' in text(part({"role": "user", "content": content}))


def test_results_of_tools_are_told() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "y"}]}
    results = [{"role": "tool", "tool_call_id": each, "content": f"sunny {each}"} for each in "xy"]
    found = part("/call weather", calls, *results)
    assert text(found) == 'The tool answered "sunny x", "sunny y". I remember 1 message of yours.'


@pytest.mark.parametrize("given", [TOOLS, msgspec.Raw(msgspec.json.encode(TOOLS))])
def test_it_calls_tools(given: Any) -> None:
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


def test_calls_of_one_conversation_have_ids_of_their_own() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "x", "content": ""}
    found = part("/call weather", calls, result, "/call weather", tools=TOOLS)
    assert found.deltas[0]["tool_calls"][0]["id"] == "call_demo_1"
    assert found.deltas[1]["tool_calls"][0]["function"] == {"arguments": "{}"}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("/call", "Name the tool to call"),
        ("/call nothing", "There is no tool nothing to call. The tools of this request: weather, shell."),
        ("/call weather Rome", "must be a JSON object"),
        ("/call weather [1]", "must be a JSON object"),
        ("/dance", "I do not understand /dance."),
        ("/count", "I do not understand /count."),
        ("/help", HELP),
        ("  /help  ", HELP),
        ("/markdown", MARKDOWN),
        ("/count 0", "0"),
        ("/slow", 'You said "/slow".'),
        ("and /help", 'You said "and /help".'),
        ("/", 'You said "/".'),
        ("/etc/passwd", "I do not understand /etc."),
    ],
)
def test_it_says_what_it_cannot_do(asked: str, answer: str) -> None:
    found = part(asked, tools=TOOLS)
    assert answer in text(found)
    assert (found.finish_reason, found.ending) == ("stop", Ending.WELL)


def test_it_thinks_before_it_speaks() -> None:
    found = part("Hi", {"role": "assistant", "content": "Hello."}, "/think hard")
    thought = [delta["reasoning_content"] for delta in found.deltas if "reasoning_content" in delta]
    assert "there are 2 messages, 1 of them from the user" in "".join(thought)
    assert all("content" in delta for delta in found.deltas[len(thought) :])
    assert text(found).startswith('You said "/think hard".')


@pytest.mark.parametrize(
    ("asked", "words", "ending"),
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
def test_it_fails_where_it_is_told(asked: str, words: int, ending: Ending) -> None:
    found = part(asked)
    assert (min(len(found.deltas), 9), found.ending) == (words, ending)


def test_it_runs_out_of_room() -> None:
    found = part("/length")
    assert found.finish_reason == "length"
    assert text(part("Hello")).startswith("You said")
    assert text(found) == 'You said "/length". I'


def test_it_refuses() -> None:
    found = part("/refuse")
    assert text(found) == ""
    assert text(found, "refusal") == "I refuse to answer that, as you asked me to."


def test_it_is_slow_when_asked() -> None:
    assert part("/slow Hello").is_slow
    assert not part("Hello").is_slow


def test_words_are_its_tokens() -> None:
    assert part("one two", "/count 3").usage == {
        "prompt_tokens": 4,
        "completion_tokens": 3,
        "total_tokens": 7,
    }


def test_it_does_not_count_for_ever() -> None:
    assert len(part("/count 999999999").deltas) == 10_000


@pytest.mark.parametrize("messages", [b"{}", b"[1]", b'[{"role": "king", "content": ""}]', b'"Hi"', b"null"])
def test_what_are_no_messages_is_refused_as_models_do(messages: bytes) -> None:
    with pytest.raises(ModelRefused, match="messages") as caught:
        part_of(ModelRequest(msgspec.Raw(messages)))
    assert (caught.value.status, caught.value.error["param"]) == (400, "messages")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["role", "content", "tool_calls", "name", "type", "text", "function"])
ROLES = st.sampled_from(["user", "assistant", "tool", "system"])


@given(st.lists(st.dictionaries(FIELDS, JSON | ROLES)) | JSON, JSON | st.lists(st.dictionaries(FIELDS, JSON)))
def test_whatever_it_is_sent_it_answers_or_refuses(messages: Any, tools: Any) -> None:
    try:
        found = part_of(ModelRequest(msgspec.Raw(msgspec.json.encode(messages)), {"tools": tools}))
    except ModelRefused:
        return
    assert found.deltas
