"""Chat messages for tests: built, or generated as clients send them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from tests.unit.model.shapes import CALL_IDS, json_values

Message = dict[str, Any]

# Unknown fields, which clients get back as sent.
EXTRA_NAMES = ("cache_control", "reasoning_content", "chat_only", "type", "id", "status", "x")
extras = st.dictionaries(st.sampled_from(EXTRA_NAMES), json_values, max_size=2)
few_extras = st.just({}) | st.just({}) | extras


def function(call_id: str, name: str = "look", arguments: str = "{}") -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def custom(call_id: str, name: str = "look", input: str = "x") -> Message:
    return {"id": call_id, "type": "custom", "custom": {"name": name, "input": input}}


def call_message(*calls: Message, content: Any = None, **fields: Any) -> Message:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **fields}


def answering(call_id: str, content: Any = "found", **fields: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def plain_message(role: str, content: Any, **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def _part(kind: str, body: Any, more: Message) -> Message:
    return {**more, "type": kind, kind: body}


_free_bodies = st.dictionaries(st.sampled_from(["file_id", "filename", "type", "x"]), json_values, max_size=3)
_images = st.fixed_dictionaries({"url": st.text()}, optional={"detail": json_values, "x": json_values})
parts = st.one_of(
    st.builds(_part, st.just("text"), st.text(), few_extras),
    st.builds(_part, st.just("text"), st.text(), st.just({})),
    st.builds(_part, st.just("refusal"), st.text(), few_extras),
    st.builds(_part, st.just("image_url"), _images | st.text() | st.none(), few_extras),
    st.builds(_part, st.just("file"), _free_bodies | st.none(), few_extras),
    st.builds(_part, st.just("input_audio"), _free_bodies, few_extras),
    st.builds(_part, st.sampled_from(["output_audio", "video_url", "Ünï"]), _free_bodies, few_extras),
)
contents = st.text() | st.just("") | st.lists(parts, max_size=3)

_asides = st.fixed_dictionaries(
    {}, optional={"name": st.text(), "refusal": st.text(), "audio": st.just({"id": "audio_1"}) | _free_bodies}
)
_bodies = st.fixed_dictionaries({"name": st.text(min_size=1)}, optional={"strict": json_values})
_call_extras = st.dictionaries(st.sampled_from(["index", "extra_content"]), json_values, max_size=1)


def _call(call_id: str, kind: str, body: Message, text: str, more: Message) -> Message:
    field = "arguments" if kind == "function" else "input"
    return {**more, "id": call_id, "type": kind, kind: {**body, field: text}}


def calls(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Message]:
    return st.builds(_call, ids, st.sampled_from(["function", "custom"]), _bodies, st.text(), _call_extras)


spoken = st.builds(
    lambda role, content, more, name: {**more, "role": role, "content": content, **name},
    st.sampled_from(["user", "system", "developer"]),
    contents,
    few_extras,
    st.fixed_dictionaries({}, optional={"name": st.text()}),
)


def _answer(content: Any, calls: list[Message], asides: Message, more: Message) -> Message:
    with_calls = {"tool_calls": calls} if calls else {}
    return {**more, "role": "assistant", "content": content, **asides, **with_calls}


def _with_results(answer: Message, order: Iterable[int], content: Any, more: Message) -> list[Message]:
    """Return the answer and results of some of its calls, in some order."""
    made = answer.get("tool_calls", [])
    answered = dict.fromkeys(made[place % len(made)]["id"] for place in order) if made else {}
    return [answer, *({**more, **answering(call_id, content)} for call_id in answered)]


_answers = st.builds(
    _answer,
    st.none() | contents,
    st.lists(calls(st.sampled_from(CALL_IDS)), max_size=3, unique_by=lambda each: each["id"]),
    st.just({}) | _asides,
    few_extras,
)
_exchanges = st.one_of(
    spoken.map(lambda each: [each]),
    st.builds(_with_results, _answers, st.lists(st.integers(0, 2), max_size=4), contents, few_extras),
    st.builds(lambda content: [answering("never called", content)], contents),
)
conversations = st.lists(_exchanges, max_size=5).map(lambda many: [each for some in many for each in some])
"""Results directly after their calls; with repeated ids, unanswered calls and stray results."""


def shuffled(messages: list[Message]) -> st.SearchStrategy[list[Message]]:
    return st.permutations(messages).map(list)
