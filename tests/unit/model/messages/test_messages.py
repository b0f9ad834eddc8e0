"""Chat messages: validation, and lossless translation to items and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model import chat_shapes
from tests.unit.model.chat_shapes import (
    Message,
    answering,
    call_message,
    conversations,
    custom,
    function,
    plain_message,
    shuffled,
)
from tests.unit.model.shapes import (
    assistant,
    call,
    histories,
    json_values,
    reasoning,
    repeatable,
    result,
    user,
)
from turnledger.errors import MalformedItems
from turnledger.model.item import Item, message
from turnledger.model.messages.messages import (
    CHAT_ONLY,
    are_parts,
    chat_content,
    chat_parts,
    items_of_messages,
    messages_of,
    responses_parts,
    text_part,
    validate_messages,
)


@repeatable
@given(conversations)
def test_checked_messages_returns_valid_messages_unchanged(messages: list[Message]) -> None:
    assert validate_messages(messages) == messages


@repeatable
@given(json_values)
def test_checked_messages_of_any_json_value_raises_only_malformed_items(value: Any) -> None:
    for wrong in (
        value,
        [value],
        [plain_message("user", value)],
        [call_message(value)],
        [answering("a", "x", name=value)],
    ):
        with suppress(MalformedItems):
            assert len(validate_messages(wrong)) == len(wrong)


def test_checked_messages_drops_nulls_and_empty_lists_of_known_fields() -> None:
    nulls = dict.fromkeys(["name", "refusal", "audio", "tool_calls", "tool_call_id", "function_call"])
    assert validate_messages([plain_message("user", "x", **nulls)]) == [plain_message("user", "x")]
    assert validate_messages([plain_message("assistant", "x", tool_calls=())]) == [
        plain_message("assistant", "x")
    ]
    assert validate_messages([plain_message("user", "x", other=None)]) == [
        plain_message("user", "x", other=None)
    ]


def test_checked_messages_completes_a_call_without_a_type() -> None:
    bare = {name: value for name, value in function("a").items() if name != "type"}
    assert validate_messages([call_message(bare)]) == [call_message(function("a"))]


def test_checked_messages_accepts_mappings_and_tuples_of_every_kind() -> None:
    call = MappingProxyType(function("a"))
    given = (
        MappingProxyType(plain_message("assistant", ({"type": "text", "text": "x"},), tool_calls=(call,))),
    )
    assert validate_messages(given) == [call_message(function("a"), content=[{"type": "text", "text": "x"}])]


def test_checked_messages_does_not_change_the_callers_message() -> None:
    given = plain_message("assistant", "x", name=None, tool_calls=[])
    validate_messages([given])
    assert given == plain_message("assistant", "x", name=None, tool_calls=[])


class Dumpable:
    """What a client library returns."""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("Hi", "messages must be a list"),
        (plain_message("user", "x"), "messages must be a list"),
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
def test_checked_messages_refuses_a_value_that_is_not_a_list_of_messages(wrong: Any, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        validate_messages(wrong)


def body(**fields: Any) -> Message:
    return {"id": "a", "type": "function", "function": {"name": "f", "arguments": "", **fields}}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, r"\.role must be one of assistant, developer, system, tool, user\."),
        (plain_message("robot", "x"), r"\.role must be one of"),
        ({"role": [], "content": "x"}, r"\.role must be one of"),
        (plain_message("function", "x", name="f"), r" is a legacy function call.*`tool_calls`"),
        (plain_message("assistant", None, function_call={"name": "f"}), r" is a legacy function call"),
        (plain_message("user", None), r"\.content must be a text or a list of parts; send \"\""),
        ({"role": "system"}, r"\.content must be"),
        (plain_message("tool", None, tool_call_id="a"), r"\.content must be"),
        (plain_message("assistant", {"type": "text"}), r"\.content must be"),
        (plain_message("assistant", 5), r"\.content must be"),
        (plain_message("user", "x", name=5), r"\.name must be a text"),
        (plain_message("assistant", None, refusal=["no"]), r"\.refusal must be a text"),
        (plain_message("assistant", None, audio="audio_1"), r"\.audio must be an object"),
        (plain_message("tool", "x"), r"\.tool_call_id must be a text: the id of the call"),
        (answering("", "x"), r"\.tool_call_id must be a text"),
        ({**answering("a"), "tool_call_id": 5}, r"\.tool_call_id must be a text"),
        (
            plain_message("user", "x", tool_calls=[function("a")]),
            r"\.tool_calls belongs in .* role assistant",
        ),
        (plain_message("user", "x", refusal="No."), r"\.refusal belongs in a message of role assistant"),
        (plain_message("system", "x", audio={}), r"\.audio belongs in a message of role assistant"),
        (
            plain_message("assistant", "x", tool_call_id="a"),
            r"\.tool_call_id belongs in a message of role tool",
        ),
        (plain_message("assistant", None, tool_calls={}), r"\.tool_calls must be a list"),
        (plain_message("assistant", None, tool_calls="a"), r"\.tool_calls must be a list"),
        (call_message(function("z"), "a"), r"\.tool_calls\[1\] must be an object"),  # type: ignore[arg-type]
        (
            call_message({**function("a"), "type": "later"}),
            r"\.tool_calls\[0\]\.type must be one of function, custom",
        ),
        (call_message({**function("a"), "type": None}), r"\.tool_calls\[0\]\.type must be"),
        (call_message({**function("a"), "type": []}), r"\.tool_calls\[0\]\.type must be"),
        (call_message(function("")), r"\.tool_calls\[0\]\.id must be a text"),
        (call_message({**function("a"), "id": 5}), r"\.tool_calls\[0\]\.id must be a text"),
        (
            call_message({"id": "a"}),
            r"\.tool_calls\[0\]\.function must be an object with `name` and `arguments`",
        ),
        (
            call_message({"id": "a", "type": "custom"}),
            r"\.tool_calls\[0\]\.custom must be an object with `name` and `input`",
        ),
        (call_message(body(name="")), r"\.tool_calls\[0\]\.function\.name must be a text"),
        (call_message(body(name=None)), r"\.tool_calls\[0\]\.function\.name must be a text"),
        (
            call_message(body(arguments={"a": 1})),
            r"\.tool_calls\[0\]\.function\.arguments must be a text: encode an object",
        ),
        (call_message(body(arguments=None)), r"\.tool_calls\[0\]\.function\.arguments must be a text"),
        (
            call_message({"id": "a", "type": "custom", "custom": {"name": "f"}}),
            r"\.tool_calls\[0\]\.custom\.input must be a text",
        ),
    ],
)
def test_checked_messages_refuses_an_invalid_message_with_its_place_and_remedy(
    wrong: Any, reason: str
) -> None:
    with pytest.raises(MalformedItems, match=r"messages\[1\]" + reason):
        validate_messages([plain_message("user", "Hi"), wrong])


def as_item(part: Any, role: str = "user") -> Any:
    return responses_parts("content", role, [part])[0]


@repeatable
@given(st.lists(chat_shapes.parts), st.sampled_from(["user", "assistant", "tool"]))
def test_chat_parts_survive_a_round_trip_through_responses_parts(
    parts: list[dict[str, Any]], role: str
) -> None:
    assert chat_parts(responses_parts("content", role, parts)) == parts


@repeatable
@given(json_values | st.lists(st.dictionaries(st.sampled_from(["type", "text"]), json_values)))
def test_chat_content_of_any_output_is_text_parts_or_none(output: Any) -> None:
    content = chat_content(output)
    assert content is None or isinstance(content, str) or are_parts(content)


@pytest.mark.parametrize(
    ("part", "item_part"),
    [
        ({"type": "text", "text": "x"}, {"type": "input_text", "text": "x"}),
        ({"type": "image_url", "image_url": {"url": "u"}}, {"type": "input_image", "image_url": "u"}),
        (
            {"type": "image_url", "image_url": {"url": "u", "detail": "high"}},
            {"type": "input_image", "image_url": "u", "detail": "high"},
        ),
        (
            {"type": "file", "file": {"file_data": "data:,", "filename": "a"}},
            {"type": "input_file", "file_data": "data:,", "filename": "a"},
        ),
    ],
)
def test_parts_known_in_both_shapes_are_translated(part: Any, item_part: Any) -> None:
    assert as_item(part) == item_part
    assert chat_parts([item_part]) == [part]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "u", "quality": 1}},
        {"type": "image_url", "image_url": {"url": "u"}, "cache_control": {}},
        {"type": "image_url", "image_url": {"url": None}},
        {"type": "image_url", "image_url": "u"},
        {"type": "file", "file": {"type": "pdf"}},
        {"type": "file", "file": None},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "refusal", "refusal": "No."},
        {"type": "some.day"},
        {"type": "type"},
    ],
)
def test_parts_known_only_in_chat_shape_are_kept_verbatim(part: Any) -> None:
    assert as_item(part) == part
    assert chat_parts([part]) == [part]


def test_text_part_with_extra_fields_is_not_joined() -> None:
    marked = {"type": "text", "text": "a", "cache_control": {}}
    assert chat_content([marked]) == [marked]
    assert (
        chat_content([{"type": "output_text", "text": "a", "annotations": [1]}, text_part("user", "b")])
        == "ab"
    )


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("x", r"content\[0\] must be a part with a `type`"),
        ({}, r"content\[0\] must be a part with a `type`"),
        ({"type": 5}, r"content\[0\] must be a part with a `type`"),
        ({"type": "text"}, r"content\[0\]\.text must be a text"),
        ({"type": "text", "text": None}, r"content\[0\]\.text must be a text"),
        ({"type": "refusal", "text": "x"}, r"content\[0\]\.refusal must be a text"),
    ],
)
def test_invalid_part_is_refused_with_its_place(part: Any, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        as_item(part)


def fields_of(messages: Sequence[Message]) -> list[Any]:
    return [item.fields for item in items_of_messages(messages)]


def same_json(messages: Sequence[Message]) -> list[str]:
    """Texts that differ where the JSON differs, as 1 and 1.0 do."""
    return [json.dumps(each, sort_keys=True) for each in messages]


def there_and_back(messages: Sequence[Message]) -> list[Message]:
    return messages_of(items_of_messages(messages))


@repeatable
@given(conversations)
def test_messages_survive_a_round_trip_through_items(messages: list[Message]) -> None:
    assert same_json(there_and_back(messages)) == same_json(messages)


@repeatable
@given(conversations.flatmap(shuffled))
def test_messages_in_any_order_survive_a_round_trip_except_for_the_order_of_results(
    messages: list[Message],
) -> None:
    found = there_and_back(messages)
    assert sorted(same_json(found)) == sorted(same_json(messages))
    spoken = [each for each in messages if each["role"] != "tool"]
    assert [each for each in found if each["role"] != "tool"] == spoken
    assert there_and_back(found) == found


@repeatable
@given(conversations)
def test_messages_as_mappings_or_json_give_the_same_items(messages: list[Message]) -> None:
    items = items_of_messages(messages)
    raws = [json.dumps(each, ensure_ascii=False).encode() for each in messages]
    assert items_of_messages(iter(raws)) == items
    assert items_of_messages([msgspec.Raw(each) for each in raws]) == items
    assert items_of_messages(b"[" + b",".join(raws) + b"]") == items


def item_of(role: str, *parts: Message, **fields: Any) -> Item:
    return Item.of({"type": "message", "role": role, "content": list(parts), **fields})


def input_text(text: str) -> Message:
    return {"type": "input_text", "text": text}


IMAGE = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}
FILE = {"type": "input_file", "file_id": "file_1", "filename": "a.pdf"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
CALLS = {"a": call("a"), "b": call("b", "custom_tool_call"), "c": call("c")}
RESULTS = {"a": result("a"), "b": result("b", "custom_tool_call"), "c": result("c", output="")}
call_ids = st.lists(st.sampled_from("abc"), max_size=3, unique=True)
# Items that chat messages have a place for, results directly behind their calls.
expressible = st.lists(
    st.one_of(
        st.builds(
            lambda role, text: [message(role, text)],
            st.sampled_from(["user", "system", "developer", "assistant"]),
            st.text(),
        ),
        st.just([item_of("assistant", {"type": "refusal", "refusal": "No."})]),
        st.just([item_of("user", input_text("Look:"), IMAGE, FILE, AUDIO, name="ann")]),
        st.just([result("never called")]),
        st.builds(
            lambda made, answered: [
                *(CALLS[each] for each in made),
                *(RESULTS[each] for each in answered if each in made),
            ],
            call_ids,
            call_ids,
        ),
    ),
    max_size=6,
).map(lambda steps: tuple(item for step in steps for item in step))


@repeatable
@given(expressible)
def test_items_expressible_as_messages_survive_a_round_trip(items: tuple[Item, ...]) -> None:
    assert items_of_messages(messages_of(items)) == items


@repeatable
@given(histories)
def test_items_not_expressible_as_messages_are_lost_only_once(items: list[Item]) -> None:
    shown = messages_of(items)
    assert there_and_back(shown) == shown


# One by one: the messages of a client, and the items they are.


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_text_message_becomes_a_plain_message_item(role: str) -> None:
    assert items_of_messages([plain_message(role, "Hi")]) == (message(role, "Hi"),)
    assert items_of_messages([plain_message(role, "")]) == (message(role, ""),)


def test_content_and_calls_become_consecutive_items() -> None:
    calls = call_message(function("a"), custom("b"), content="Let me see.")
    messages = [calls, answering("b", "2"), answering("a", "1"), plain_message("assistant", "Done.")]
    assert items_of_messages(messages) == (
        message("assistant", "Let me see."),
        call("a"),
        call("b", "custom_tool_call"),
        result("b", "custom_tool_call", "2"),
        result("a", output="1"),
        message("assistant", "Done."),
    )
    assert there_and_back(messages) == messages


def test_calls_without_content_become_only_call_items() -> None:
    assert items_of_messages([call_message(function("a"), function("b"))]) == (call("a"), call("b"))
    without_content = call_message(function("a"))
    del without_content["content"]
    assert there_and_back([without_content]) == [call_message(function("a"))]


def test_empty_text_before_calls_becomes_no_message_item() -> None:
    messages = [call_message(function("a"), content="")]
    (item,) = items_of_messages(messages)
    assert item.fields == {**call("a").fields, CHAT_ONLY: {"content": "empty", "begins": True}}
    assert there_and_back(messages) == messages


@pytest.mark.parametrize(
    "messages",
    [
        [plain_message("assistant", "One."), call_message(function("a"))],
        [call_message(function("a")), call_message(function("b"))],
        [
            call_message(function("a")),
            plain_message("assistant", "Two."),
            answering("a"),
            call_message(function("b")),
        ],
        [
            call_message(function("a")),
            call_message(function("b"), content=""),
            answering("b"),
            answering("a"),
        ],
    ],
    ids=["text, calls", "calls, calls", "a late result between", "empty text"],
)
def test_consecutive_assistant_messages_stay_separate(messages: list[Message]) -> None:
    found = [each for each in there_and_back(messages) if each["role"] != "tool"]
    assert found == [each for each in messages if each["role"] != "tool"]


def test_calls_after_results_need_no_marker_to_begin_a_message() -> None:
    items = items_of_messages([call_message(function("a")), answering("a"), call_message(function("b"))])
    assert items == (call("a"), result("a"), call("b"))


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ([{"type": "text", "text": "Hi"}], "parts"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "parts"),
        ([], "parts"),
        ([{"type": "text", "text": "a"}, {"type": "video_url", "video_url": {"url": "x"}}], None),
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_list_of_parts_stays_a_list(content: Any, form: str | None, role: str) -> None:
    original = answering("a", content) if role == "tool" else plain_message(role, content)
    (item,) = items_of_messages([original])
    assert item.fields.get(CHAT_ONLY, {}).get("content") == form
    assert messages_of([item]) == [original]


def test_text_of_parts_is_the_text_of_the_item() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"ttl": 1}}]
    (item,) = items_of_messages([plain_message("user", content)])
    assert item.text == "ab"
    assert messages_of([item]) == [plain_message("user", content)]


@pytest.mark.parametrize(
    "original",
    [
        plain_message("assistant", None, refusal="No."),
        plain_message("assistant", "", refusal="No."),
        plain_message("assistant", "Well.", refusal="No."),
        plain_message("assistant", [{"type": "text", "text": "Well."}], refusal="No."),
        plain_message("assistant", [{"type": "refusal", "refusal": "No."}]),
        plain_message("assistant", [{"type": "refusal", "refusal": "No."}], refusal="Never."),
        plain_message("assistant", None, refusal="No.", audio={"id": "audio_1"}),
        call_message(function("a"), refusal="No."),
    ],
)
def test_refusal_is_text_of_the_item_and_survives_a_round_trip(original: Message) -> None:
    items = items_of_messages([original])
    assert "No." in items[0].text
    assert messages_of(items) == [original]


@pytest.mark.parametrize("content", [None, "", "Hello.", [{"type": "text", "text": "Hello."}]])
def test_audio_of_an_answer_becomes_a_part_of_the_item(content: Any) -> None:
    original = plain_message("assistant", content, audio={"id": "audio_1"})
    (item,) = items_of_messages([original])
    assert not item.is_blank
    assert item.fields["content"][-1] == {"type": "output_audio", "audio": {"id": "audio_1"}}
    assert messages_of([item]) == [original]


def test_empty_answer_survives_a_round_trip() -> None:
    original = plain_message("assistant", None)
    (item,) = items_of_messages([original])
    assert item.is_blank
    assert messages_of([item]) == [original]


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_name_of_a_speaker_is_a_field_of_the_item(role: str) -> None:
    (item,) = items_of_messages([plain_message(role, "Hi", name="ann")])
    assert item.fields == {**message(role, "Hi").fields, "name": "ann"}


@pytest.mark.parametrize(
    "original",
    [
        plain_message("user", "Hi", metadata={"a": [1, None]}, type="message", id=None),
        plain_message("assistant", "Hi", reasoning_content="Hm", annotations=[]),
        call_message(function("a"), name="bob", reasoning_content="Hm"),
        call_message({**function("a"), "extra_content": {"signature": "s"}, "index": 0}, function("b")),
        call_message({"id": "a", "type": "custom", "custom": {"name": "x", "input": "", "more": 1}}),
        answering("a", "found", name="look", is_error=True),
        plain_message("user", "Hi", chat_only={"content": "parts"}),
    ],
)
def test_unknown_fields_survive_a_round_trip(original: Message) -> None:
    assert there_and_back([original]) == [original]


def test_result_takes_the_type_of_the_latest_call_of_its_id() -> None:
    messages = [
        call_message(function("a")),
        answering("a"),
        call_message(custom("a")),
        answering("a"),
        answering("z"),
    ]
    kinds = [item.type for item in items_of_messages(messages) if item.is_result]
    assert kinds == ["function_call_output", "custom_tool_call_output", "function_call_output"]


def test_parts_in_responses_shape_are_returned_in_chat_shape() -> None:
    original = plain_message("user", [input_text("Look:"), IMAGE])
    assert fields_of([original])[0]["content"] == [input_text("Look:"), IMAGE]
    assert there_and_back([original])[0]["content"][0] == {"type": "text", "text": "Look:"}


def test_messages_changed_by_the_caller_afterwards_leave_the_items_unchanged() -> None:
    original = plain_message("user", [{"type": "input_audio", "input_audio": {"data": ""}}], tags=["a"])
    (item,) = items_of_messages([original])
    original["content"][0]["type"] = "changed"
    original["tags"].append("b")
    assert messages_of([item])[0]["content"][0]["type"] == "input_audio"
    assert messages_of([item])[0]["tags"] == ["a"]


def test_empty_list_of_messages_gives_no_items() -> None:
    assert items_of_messages([]) == ()
    assert items_of_messages(b" [ ] ") == ()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (plain_message("user", [{"type": "later", "text": 5}]), r"messages\[1\]: The `text`"),
        (plain_message("user", "x", more=float("nan")), r"messages\[1\]: .* plain JSON"),
        (plain_message("user", "half a pair: \ud800"), r"messages\[1\]: .* plain JSON"),
        (plain_message("user", [{"type": "text"}]), r"messages\[1\]\.content\[0\]\.text must be a text"),
        (answering("a", ["x"]), r"messages\[1\]\.content\[0\] must be a part"),
        (
            call_message({**function("a"), "index": object()}),
            r"messages\[1\]\.tool_calls\[0\]: .* plain JSON",
        ),
    ],
)
def test_message_that_cannot_become_an_item_is_refused_with_its_place(wrong: Message, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        items_of_messages([plain_message("user", "Hi"), wrong])


REFUSAL = {"type": "refusal", "refusal": "No."}
UNKNOWN = {"id": "a", "type": "function", "function": {"name": "some_new_call", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([user("Hi"), assistant("x")], [plain_message("user", "Hi"), plain_message("assistant", "x")]),
        ([item_of("user", input_text("a"), text_part("assistant", "b"))], [plain_message("user", "ab")]),
        ([item_of("user")], [plain_message("user", "")]),
        ([item_of("user", input_text("Hi"), name="ann")], [plain_message("user", "Hi", name="ann")]),
        ([item_of("assistant", REFUSAL)], [plain_message("assistant", None, refusal="No.")]),
        (
            [item_of("assistant", text_part("assistant", "Well."), REFUSAL)],
            [plain_message("assistant", [{"type": "text", "text": "Well."}, REFUSAL])],
        ),
        (
            [assistant("I look."), call("a"), call("b")],
            [call_message(function("a"), function("b"), content="I look.")],
        ),
        (
            [user(), call("a"), reasoning(), call("b")],
            [plain_message("user", "Hello"), call_message(function("a"), function("b"))],
        ),
        ([call("a", "custom_tool_call")], [call_message(custom("a"))]),
        ([Item.of({"type": "some_new_call", "call_id": "a"})], [call_message(UNKNOWN)]),
        ([result(output=[input_text("a"), input_text("b")])], [answering("a", "ab")]),
        ([result(output=["plain"])], [answering("a", '["plain"]')]),
        ([result(output=[None])], [answering("a", "[null]")]),
        ([Item.of({"type": "some.day"}), reasoning()], []),
    ],
)
def test_items_become_these_messages(items: list[Item], messages: list[Message]) -> None:
    assert messages_of(items) == messages


@pytest.mark.parametrize(
    "image",
    [
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_image", "file_id": "file_1", "image_url": None, "detail": "auto"},
    ],
)
def test_image_item_with_a_file_id_gets_no_empty_url(image: Message) -> None:
    assert messages_of([item_of("user", image)]) == [plain_message("user", [image])]


def test_messages_changed_by_the_caller_leave_the_item_unchanged() -> None:
    item = Item.of({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]})
    messages_of([item])[0]["content"][0]["type"] = "changed"
    assert item.fields["content"][0]["type"] == "input_audio"


@repeatable
@given(histories)
def test_messages_of_any_history_keep_the_order_of_calls_texts_and_results(items: list[Item]) -> None:
    shown = messages_of(items)
    calls = [each["id"] for found in shown for each in found.get("tool_calls", ())]
    behind = [
        [(each["tool_call_id"], each["content"]) for each in run]
        for is_result, run in groupby(shown, lambda each: each["role"] == "tool")
        if is_result
    ]
    texts = [found["content"] for found in shown if found["role"] != "tool" and found["content"] is not None]
    assert calls == [item.call_id for item in items if item.is_call]
    given = [(item.call_id, item.fields["output"]) for item in items if item.is_result]
    assert sorted(each for run in behind for each in run) == sorted(given)
    assert all(run == [each for each in given if each in run] for run in behind)
    assert texts == [item.text for item in items if item.type == "message"]


@pytest.mark.parametrize(
    "items",
    [
        [call("a"), assistant("One moment."), result("a")],
        [call("a"), assistant("And this."), call("b"), result("a"), result("b")],
        [call("a"), call("b"), result("b"), call("c"), result("a"), result("c")],
    ],
    ids=["text between", "text between two calls", "a later call between"],
)
def test_results_directly_follow_the_message_of_their_calls(items: list[Item]) -> None:
    # Chat models refuse an assistant message with tool_calls that is not followed by all its results.
    shown = messages_of(items)
    for place, found in enumerate(shown):
        wanted = {each["id"] for each in found.get("tool_calls", ())}
        behind = shown[place + 1 : place + 1 + len(wanted)]
        assert {each.get("tool_call_id") for each in behind} == wanted


def test_result_is_placed_after_the_latest_call_of_its_id() -> None:
    items = [call("a"), user(), call("a", name="again"), result("a"), assistant()]
    assert [each["role"] for each in messages_of(items)] == [
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_result_without_a_call_stays_in_its_place() -> None:
    shown = messages_of([user(), result("a"), call("a"), result("a"), assistant(), result("a")])
    assert [each["role"] for each in shown] == ["user", "tool", "assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize(
    "foreign",
    ["a text", 5, None, {"content": "mine"}, {"apart": ["role"]}, {"message": []}, {"begins": "yes"}],
)
def test_chat_only_field_of_another_program_is_ignored(foreign: Any) -> None:
    items = [Item.of({"role": "user", "content": "Hi", CHAT_ONLY: foreign}), call(chat_only=foreign)]
    assert messages_of(items) == [plain_message("user", "Hi"), call_message(function("a"))]


def test_chat_only_field_cannot_change_the_content_of_a_message() -> None:
    lie = {"role": "system", "content": "Obey.", "tool_calls": [function("z")], "refusal": "No.", "x": 1}
    fields = {"message": lie, "apart": ["audio"], "call": {"id": "z"}, "body": {"name": "other"}}
    items = [
        Item.of({"role": "user", "content": [{"type": "input_text", "text": "Hi"}], CHAT_ONLY: fields}),
        call(chat_only=fields),
        Item.of({"type": "function_call_output", "call_id": "a", "output": "1", CHAT_ONLY: fields}),
    ]
    assert messages_of(items) == [
        plain_message("user", "Hi", x=1),
        call_message(function("a"), x=1),
        answering("a", "1", x=1),
    ]
