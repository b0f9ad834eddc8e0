"""Chat messages as items, and there and back: nothing lost on the way that has a place in the other shape."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.chat_shapes import (
    Message,
    answering,
    asking,
    conversations,
    custom,
    function,
    saying,
    shuffled,
)
from tests.unit.model.shapes import call, histories, repeatable, result
from turnledger.errors import MalformedItems
from turnledger.model.item import Item, message
from turnledger.model.messages.messages import CHAT_ONLY, items_of_messages, messages_of


def fields_of(messages: Sequence[Message]) -> list[Any]:
    return [item.fields for item in items_of_messages(messages)]


def same_json(messages: Sequence[Message]) -> list[str]:
    """Texts that differ where the JSON differs, as 1 and 1.0 do."""
    return [json.dumps(each, sort_keys=True) for each in messages]


def there_and_back(messages: Sequence[Message]) -> list[Message]:
    return messages_of(items_of_messages(messages))


@repeatable
@given(conversations)
def test_messages_come_back_as_they_were(messages: list[Message]) -> None:
    assert same_json(there_and_back(messages)) == same_json(messages)


@repeatable
@given(conversations.flatmap(shuffled))
def test_in_any_order_only_results_move(messages: list[Message]) -> None:
    found = there_and_back(messages)
    assert sorted(same_json(found)) == sorted(same_json(messages))
    spoken = [each for each in messages if each["role"] != "tool"]
    assert [each for each in found if each["role"] != "tool"] == spoken
    assert there_and_back(found) == found


@repeatable
@given(conversations)
def test_mappings_and_their_json_are_the_same(messages: list[Message]) -> None:
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
def test_items_that_messages_can_express_come_back_as_they_were(items: tuple[Item, ...]) -> None:
    assert items_of_messages(messages_of(items)) == items


@repeatable
@given(histories)
def test_what_has_no_place_in_messages_is_lost_once(items: list[Item]) -> None:
    shown = messages_of(items)
    assert there_and_back(shown) == shown


# One by one: the messages of a client, and the items they are.


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_a_text_is_the_item_that_a_text_always_makes(role: str) -> None:
    assert items_of_messages([saying(role, "Hi")]) == (message(role, "Hi"),)
    assert items_of_messages([saying(role, "")]) == (message(role, ""),)


def test_content_and_calls_are_items_one_after_another() -> None:
    asked = asking(function("a"), custom("b"), content="Let me see.")
    messages = [asked, answering("b", "2"), answering("a", "1"), saying("assistant", "Done.")]
    assert items_of_messages(messages) == (
        message("assistant", "Let me see."),
        call("a"),
        call("b", "custom_tool_call"),
        result("b", "custom_tool_call", "2"),
        result("a", output="1"),
        message("assistant", "Done."),
    )
    assert there_and_back(messages) == messages


def test_calls_without_content_are_calls_and_nothing_else() -> None:
    assert items_of_messages([asking(function("a"), function("b"))]) == (call("a"), call("b"))
    without_content = asking(function("a"))
    del without_content["content"]
    assert there_and_back([without_content]) == [asking(function("a"))]


def test_an_empty_text_before_calls_makes_no_empty_message() -> None:
    messages = [asking(function("a"), content="")]
    (item,) = items_of_messages(messages)
    assert item.fields == {**call("a").fields, CHAT_ONLY: {"content": "empty", "begins": True}}
    assert there_and_back(messages) == messages


@pytest.mark.parametrize(
    "messages",
    [
        [saying("assistant", "One."), asking(function("a"))],
        [asking(function("a")), asking(function("b"))],
        [asking(function("a")), saying("assistant", "Two."), answering("a"), asking(function("b"))],
        [asking(function("a")), asking(function("b"), content=""), answering("b"), answering("a")],
    ],
    ids=["text, calls", "calls, calls", "a late result between", "empty text"],
)
def test_two_assistant_messages_do_not_become_one(messages: list[Message]) -> None:
    found = [each for each in there_and_back(messages) if each["role"] != "tool"]
    assert found == [each for each in messages if each["role"] != "tool"]


def test_calls_after_results_need_no_word_to_begin_a_message() -> None:
    items = items_of_messages([asking(function("a")), answering("a"), asking(function("b"))])
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
def test_a_list_of_parts_stays_a_list(content: Any, form: str | None, role: str) -> None:
    said = answering("a", content) if role == "tool" else saying(role, content)
    (item,) = items_of_messages([said])
    assert item.fields.get(CHAT_ONLY, {}).get("content") == form
    assert messages_of([item]) == [said]


def test_the_text_of_parts_is_seen_as_text() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"ttl": 1}}]
    (item,) = items_of_messages([saying("user", content)])
    assert item.text == "ab"
    assert messages_of([item]) == [saying("user", content)]


@pytest.mark.parametrize(
    "said",
    [
        saying("assistant", None, refusal="No."),
        saying("assistant", "", refusal="No."),
        saying("assistant", "Well.", refusal="No."),
        saying("assistant", [{"type": "text", "text": "Well."}], refusal="No."),
        saying("assistant", [{"type": "refusal", "refusal": "No."}]),
        saying("assistant", [{"type": "refusal", "refusal": "No."}], refusal="Never."),
        saying("assistant", None, refusal="No.", audio={"id": "audio_1"}),
        asking(function("a"), refusal="No."),
    ],
)
def test_a_refusal_is_text_of_the_item_and_comes_back_where_it_was(said: Message) -> None:
    items = items_of_messages([said])
    assert "No." in items[0].text
    assert messages_of(items) == [said]


@pytest.mark.parametrize("content", [None, "", "Hello.", [{"type": "text", "text": "Hello."}]])
def test_the_audio_of_an_answer_is_a_part_of_the_item(content: Any) -> None:
    said = saying("assistant", content, audio={"id": "audio_1"})
    (item,) = items_of_messages([said])
    assert not item.is_blank
    assert item.fields["content"][-1] == {"type": "output_audio", "audio": {"id": "audio_1"}}
    assert messages_of([item]) == [said]


def test_an_answer_of_nothing_stays_one() -> None:
    said = saying("assistant", None)
    (item,) = items_of_messages([said])
    assert item.is_blank
    assert messages_of([item]) == [said]


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_names_stand_where_items_have_them(role: str) -> None:
    (item,) = items_of_messages([saying(role, "Hi", name="ann")])
    assert item.fields == {**message(role, "Hi").fields, "name": "ann"}


@pytest.mark.parametrize(
    "said",
    [
        saying("user", "Hi", metadata={"a": [1, None]}, type="message", id=None),
        saying("assistant", "Hi", reasoning_content="Hm", annotations=[]),
        asking(function("a"), name="bob", reasoning_content="Hm"),
        asking({**function("a"), "extra_content": {"signature": "s"}, "index": 0}, function("b")),
        asking({"id": "a", "type": "custom", "custom": {"name": "x", "input": "", "more": 1}}),
        answering("a", "found", name="look", is_error=True),
        saying("user", "Hi", chat_only={"content": "parts"}),
    ],
)
def test_unknown_fields_are_carried_along(said: Message) -> None:
    assert there_and_back([said]) == [said]


def test_what_a_client_library_dumps_is_taken_with_all_its_nulls() -> None:
    dumped = saying(
        "assistant", "Hi", refusal=None, audio=None, function_call=None, tool_calls=None, name=None
    )
    assert items_of_messages([dumped]) == (message("assistant", "Hi"),)
    assert items_of_messages([saying("assistant", "Hi", tool_calls=[])]) == (message("assistant", "Hi"),)
    assert there_and_back([asking({"id": "a", "function": {"name": "look", "arguments": "{}"}})]) == [
        asking(function("a"))
    ]


def test_a_result_has_the_type_of_the_latest_call_of_its_id() -> None:
    messages = [asking(function("a")), answering("a"), asking(custom("a")), answering("a"), answering("z")]
    kinds = [item.type for item in items_of_messages(messages) if item.is_result]
    assert kinds == ["function_call_output", "custom_tool_call_output", "function_call_output"]


def test_parts_in_responses_shape_are_shown_in_chat_shape() -> None:
    said = saying("user", [input_text("Look:"), IMAGE])
    assert fields_of([said])[0]["content"] == [input_text("Look:"), IMAGE]
    assert there_and_back([said])[0]["content"][0] == {"type": "text", "text": "Look:"}


def test_the_callers_messages_can_change_afterwards() -> None:
    said = saying("user", [{"type": "input_audio", "input_audio": {"data": ""}}], tags=["a"])
    (item,) = items_of_messages([said])
    said["content"][0]["type"] = "changed"
    said["tags"].append("b")
    assert messages_of([item])[0]["content"][0]["type"] == "input_audio"
    assert messages_of([item])[0]["tags"] == ["a"]


def test_no_messages_are_no_items() -> None:
    assert items_of_messages([]) == ()
    assert items_of_messages(b" [ ] ") == ()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (saying("user", [{"type": "later", "text": 5}]), r"messages\[1\]: The `text`"),
        (saying("user", "x", more=float("nan")), r"messages\[1\]: .* plain JSON"),
        (saying("user", "half a pair: \ud800"), r"messages\[1\]: .* plain JSON"),
        (saying("user", [{"type": "text"}]), r"messages\[1\]\.content\[0\]\.text must be a text"),
        (answering("a", ["x"]), r"messages\[1\]\.content\[0\] must be a part"),
        (asking({**function("a"), "index": object()}), r"messages\[1\]\.tool_calls\[0\]: .* plain JSON"),
    ],
)
def test_what_cannot_be_an_item_is_refused_with_its_place(wrong: Message, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        items_of_messages([saying("user", "Hi"), wrong])


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_a_plain_text_makes_the_item_that_it_makes_among_others(role: str) -> None:
    plain = {"role": role, "content": "Hello"}
    among = items_of_messages([plain, {"role": "user", "content": "x", "name": "y"}])
    assert items_of_messages([plain]) == among[:1]
