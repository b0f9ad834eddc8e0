"""What may be a chat message: every refusal names the place and what would be right there."""

from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.unit.model.chat_shapes import (
    Message,
    answering,
    asking,
    conversations,
    function,
    saying,
)
from tests.unit.model.shapes import json_values, repeatable
from turnledger.errors import MalformedItems
from turnledger.model.messages.messages import checked_messages


@repeatable
@given(conversations)
def test_what_clients_send_is_accepted_as_it_is(messages: list[Message]) -> None:
    assert checked_messages(messages) == messages


@repeatable
@given(json_values)
def test_anything_else_is_refused_and_nothing_breaks(value: Any) -> None:
    for wrong in (
        value,
        [value],
        [saying("user", value)],
        [asking(value)],
        [answering("a", "x", name=value)],
    ):
        with suppress(MalformedItems):
            assert len(checked_messages(wrong)) == len(wrong)


def test_nulls_and_empty_lists_say_nothing() -> None:
    nulls = dict.fromkeys(["name", "refusal", "audio", "tool_calls", "tool_call_id", "function_call"])
    assert checked_messages([saying("user", "x", **nulls)]) == [saying("user", "x")]
    assert checked_messages([saying("assistant", "x", tool_calls=())]) == [saying("assistant", "x")]
    assert checked_messages([saying("user", "x", other=None)]) == [saying("user", "x", other=None)]


def test_mappings_and_tuples_of_every_kind_are_taken() -> None:
    call = MappingProxyType(function("a"))
    given = (MappingProxyType(saying("assistant", ({"type": "text", "text": "x"},), tool_calls=(call,))),)
    assert checked_messages(given) == [asking(function("a"), content=[{"type": "text", "text": "x"}])]


def test_the_callers_message_is_not_changed() -> None:
    given = saying("assistant", "x", name=None, tool_calls=[])
    checked_messages([given])
    assert given == saying("assistant", "x", name=None, tool_calls=[])


class Dumpable:
    """What a client library returns."""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("Hi", "messages must be a list"),
        (saying("user", "x"), "messages must be a list"),
        (None, "messages must be a list"),
        (b'{"role":"user"}', "messages must be a list"),
        (b"[", "messages must be JSON"),
        (b'["\xff"]', "messages must be JSON"),
        (b"[" * 100_000, "messages must be JSON"),
        ([msgspec.Raw(b"{")], r"messages\[0\] must be JSON"),
        ([b"5"], r"messages\[0\] must be a mapping or its JSON, not int"),
        (["Hi"], r"messages\[0\] must be a mapping or its JSON, not str"),
        ([Dumpable()], r"messages\[0\] must be .* not Dumpable; .* model_dump\(\)"),
    ],
)
def test_what_is_no_list_of_messages_is_refused(wrong: Any, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        checked_messages(wrong)


def body(**fields: Any) -> Message:
    return {"id": "a", "type": "function", "function": {"name": "f", "arguments": "", **fields}}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, r"\.role must be one of assistant, developer, system, tool, user\."),
        (saying("robot", "x"), r"\.role must be one of"),
        ({"role": [], "content": "x"}, r"\.role must be one of"),
        (saying("function", "x", name="f"), r" is a function call of the old kind.*`tool_calls`"),
        (saying("assistant", None, function_call={"name": "f"}), r" is a function call of the old kind"),
        (saying("user", None), r"\.content must be a text or a list of parts; send \"\""),
        ({"role": "system"}, r"\.content must be"),
        (saying("tool", None, tool_call_id="a"), r"\.content must be"),
        (saying("assistant", {"type": "text"}), r"\.content must be"),
        (saying("assistant", 5), r"\.content must be"),
        (saying("user", "x", name=5), r"\.name must be a text"),
        (saying("assistant", None, refusal=["no"]), r"\.refusal must be a text"),
        (saying("assistant", None, audio="audio_1"), r"\.audio must be an object"),
        (saying("tool", "x"), r"\.tool_call_id must be a text: the id of the call"),
        (answering("", "x"), r"\.tool_call_id must be a text"),
        ({**answering("a"), "tool_call_id": 5}, r"\.tool_call_id must be a text"),
        (saying("user", "x", tool_calls=[function("a")]), r"\.tool_calls belongs in .* role assistant"),
        (saying("user", "x", refusal="No."), r"\.refusal belongs in a message of role assistant"),
        (saying("system", "x", audio={}), r"\.audio belongs in a message of role assistant"),
        (saying("assistant", "x", tool_call_id="a"), r"\.tool_call_id belongs in a message of role tool"),
        (saying("assistant", None, tool_calls={}), r"\.tool_calls must be a list"),
        (saying("assistant", None, tool_calls="a"), r"\.tool_calls must be a list"),
        (asking(function("z"), "a"), r"\.tool_calls\[1\] must be an object"),  # type: ignore[arg-type]
        (
            asking({**function("a"), "type": "later"}),
            r"\.tool_calls\[0\]\.type must be one of function, custom",
        ),
        (asking({**function("a"), "type": None}), r"\.tool_calls\[0\]\.type must be"),
        (asking({**function("a"), "type": []}), r"\.tool_calls\[0\]\.type must be"),
        (asking(function("")), r"\.tool_calls\[0\]\.id must be a text"),
        (asking({**function("a"), "id": 5}), r"\.tool_calls\[0\]\.id must be a text"),
        (asking({"id": "a"}), r"\.tool_calls\[0\]\.function must be an object with `name` and `arguments`"),
        (
            asking({"id": "a", "type": "custom"}),
            r"\.tool_calls\[0\]\.custom must be an object with `name` and `input`",
        ),
        (asking(body(name="")), r"\.tool_calls\[0\]\.function\.name must be a text"),
        (asking(body(name=None)), r"\.tool_calls\[0\]\.function\.name must be a text"),
        (
            asking(body(arguments={"a": 1})),
            r"\.tool_calls\[0\]\.function\.arguments must be a text: encode an object",
        ),
        (asking(body(arguments=None)), r"\.tool_calls\[0\]\.function\.arguments must be a text"),
        (
            asking({"id": "a", "type": "custom", "custom": {"name": "f"}}),
            r"\.tool_calls\[0\]\.custom\.input must be a text",
        ),
    ],
)
def test_what_is_no_message_is_refused_with_place_and_remedy(wrong: Any, reason: str) -> None:
    with pytest.raises(MalformedItems, match=r"messages\[1\]" + reason):
        checked_messages([saying("user", "Hi"), wrong])
