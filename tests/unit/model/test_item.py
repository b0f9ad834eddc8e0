"""Items are kept as given or refused with a reason; instructions stay in force until replaced."""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import assistant, call, json_values, raw, reasoning, repeatable, result, user
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.item import DEEPEST, Item, items_of, message, result_of
from turnledger.model.turn import Instructions, instructed_after, instructions_of

free_types = st.sampled_from(["note", "reasoning", "mcp_call", "future.kind", "💬"]) | st.text(
    min_size=1
).filter(lambda kind: not kind.endswith(("message", "_call", "_call_output")))
objects = st.builds(
    lambda before, kind, after: {**before, "type": kind, **after},
    st.dictionaries(st.text(), json_values, max_size=4),
    free_types,
    st.dictionaries(st.text().filter(lambda name: name != "type"), json_values, max_size=4),
)


@repeatable
@given(objects, st.booleans(), st.sampled_from([(",", ":"), (", ", " : ")]))
def test_item_keeps_its_json_verbatim(
    fields: dict[str, Any], ascii_only: bool, separators: tuple[str, str]
) -> None:
    given = json.dumps(fields, ensure_ascii=ascii_only, separators=separators).encode()
    item = Item(given)
    assert item.raw == given
    assert item.fields == fields
    assert list(item.fields) == list(fields)


@repeatable
@given(objects)
def test_item_of_a_mapping_has_the_same_json(fields: dict[str, Any]) -> None:
    item = Item.of(fields)
    assert json.loads(item.raw) == fields
    assert list(json.loads(item.raw)) == list(fields)
    assert Item(item.raw) == item


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**70), 10**40, 0.1, 1e300, -0.0])
def test_item_keeps_the_value_of_any_number(number: float) -> None:
    item = Item.of({"type": "note", "n": number})
    assert item.fields["n"] == number
    assert json.loads(item.raw)["n"] == number


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_item_with_a_number_that_json_lacks_is_refused(number: float) -> None:
    with pytest.raises(MalformedItems):
        Item.of({"type": "note", "nested": [{"n": number}]})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (b"", "JSON object"),
        (b"nonsense", "JSON object"),
        (b"[]", "JSON object"),
        (b'"text"', "JSON object"),
        (b"null", "JSON object"),
        (b'{"type":"note"', "JSON object"),
        (b'{"type":"note"}{}', "JSON object"),
        (b'{"type":"note","n":NaN}', "JSON object"),
        (b"{}", "`type`"),
        (b'{"type":""}', "`type`"),
        (b'{"type":null}', "`type`"),
        (b'{"type":5}', "`type`"),
        (b'{"type":"message","content":"x"}', "`role`.*assistant, developer, system, user"),
        (b'{"type":"message","role":"tool","content":"x"}', "`role`"),
        (b'{"type":"message","role":null,"content":"x"}', "`role`"),
        (b'{"type":"message","role":"user"}', "`content`"),
        (b'{"type":"message","role":"user","content":null}', "`content`"),
        (b'{"type":"message","role":"user","content":5}', "`content`"),
        (b'{"type":"message","role":"user","content":["x"]}', "`content`"),
        (b'{"type":"message","role":"user","content":[{"text":5}]}', "`text`"),
        (b'{"type":"message","role":"assistant","content":[{"refusal":5}]}', "`text`"),
        (b'{"type":"function_call","name":"f","arguments":"{}"}', "function_call needs `call_id`"),
        (b'{"type":"function_call","call_id":"","name":"f","arguments":"{}"}', "`call_id`"),
        (b'{"type":"function_call","call_id":5,"name":"f","arguments":"{}"}', "`call_id`"),
        (b'{"type":"function_call","call_id":"a","arguments":"{}"}', "`name`"),
        (b'{"type":"function_call","call_id":"a","name":"","arguments":"{}"}', "`name`"),
        (b'{"type":"function_call","call_id":"a","name":"f"}', "`arguments`"),
        (b'{"type":"function_call","call_id":"a","name":"f","arguments":{}}', "`arguments`"),
        (b'{"type":"custom_tool_call","call_id":"a","name":"f"}', "custom_tool_call needs `input`"),
        (b'{"type":"function_call_output","output":"x"}', "function_call_output needs `call_id`"),
        (b'{"type":"function_call_output","call_id":"a"}', "`output`"),
        (b'{"type":"custom_tool_call_output","call_id":"a"}', "custom_tool_call_output needs an `output`"),
    ],
)
def test_invalid_item_is_refused_with_the_reason(given: bytes, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        Item(given)


def test_item_with_invalid_utf_8_is_refused() -> None:
    with pytest.raises(MalformedItems):
        Item(b'{"type":"note","text":"\xff"}')


def test_item_with_a_role_that_is_not_a_text_is_refused() -> None:
    with pytest.raises(MalformedItems, match="`role`"):
        Item(b'{"type":"message","role":[],"content":"x"}')


def test_item_with_endless_nesting_is_refused() -> None:
    with pytest.raises(MalformedItems):
        Item(b'{"type":"note","deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_item_nested_more_than_100_levels_is_refused() -> None:
    nested: Any = []
    for _ in range(DEEPEST - 2):
        nested = [nested]
    assert Item.of({"type": "x", "x": nested}).fields["x"] == nested
    with pytest.raises(MalformedItems, match="nested more than 100 levels deep"):
        Item.of({"type": "x", "x": [nested]})


@pytest.mark.parametrize("call_id", ["", 5, [], {}])
def test_call_with_an_invalid_id_is_refused(call_id: Any) -> None:
    # Otherwise nothing can close it: result_of() raises, and with it every end of its turn.
    with pytest.raises(MalformedItems):
        result_of(Item.of({"type": "shell_call", "call_id": call_id}), "x")
    with pytest.raises(MalformedItems):
        Item.of({"type": "shell_call", "call_id": call_id})


@pytest.mark.parametrize("like", [5, None, b"bytes", ["x"], object()])
def test_item_of_a_value_that_is_no_text_mapping_or_item_is_refused(like: Any) -> None:
    with pytest.raises(MalformedItems, match="text or a mapping"):
        Item.of(like)


@pytest.mark.parametrize("value", [object(), {1, object()}, "\ud800", MappingProxyType({})])
def test_item_with_a_value_that_is_not_plain_json_is_refused(value: Any) -> None:
    with pytest.raises(MalformedItems, match="plain JSON"):
        Item.of({"type": "note", "value": value})


def test_item_of_a_text_with_invalid_unicode_is_refused() -> None:
    with pytest.raises(MalformedItems):
        Item.of("half a pair: \ud800")


def test_item_of_a_text_is_a_user_message() -> None:
    item = Item.of("Where is it?")
    assert json.loads(item.raw) == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Where is it?"}],
    }
    assert item.is_user_message


def test_item_of_an_item_is_the_same_object() -> None:
    item = user()
    assert Item.of(item) is item


def test_item_of_a_chat_message_gets_the_type_message() -> None:
    item = Item.of({"role": "system", "content": "Be kind.", "name": "house"})
    assert json.loads(item.raw) == {
        "type": "message",
        "role": "system",
        "content": "Be kind.",
        "name": "house",
    }


def test_items_of_accepts_one_or_several_items() -> None:
    mapping = {"role": "user", "content": "b"}
    assert items_of("a") == (Item.of("a"),)
    assert items_of(mapping) == (Item.of(mapping),)
    assert items_of(user()) == (user(),)
    assert items_of(each for each in ("a", mapping, user())) == (Item.of("a"), Item.of(mapping), user())
    assert items_of([]) == ()


def test_item_is_unchanged_when_the_callers_mapping_changes() -> None:
    mapping = {"type": "note", "tags": ["a"]}
    item = Item.of(mapping)
    mapping["tags"].append("b")  # type: ignore[attr-defined]
    assert item.fields["tags"] == ["a"]


def test_item_is_unchanged_when_a_reader_changes_its_fields() -> None:
    item = user("hello")
    item.fields["content"][0]["text"] = "other"
    assert item.text == "hello"
    assert item.fields["content"][0]["text"] == "hello"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([], ""),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "ab"),
        ([{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}], "ano"),
        ([{"type": "input_image", "image_url": "x"}, {"type": "input_text", "text": "a"}], "a"),
    ],
)
def test_text_of_a_message_is_its_text_parts_joined(content: Any, text: str) -> None:
    assert Item.of({"role": "user", "content": content}).text == text


def test_text_of_an_item_other_than_a_message_is_empty() -> None:
    assert reasoning().text == ""
    assert Item.of({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}).text == ""
    assert result().text == ""


@pytest.mark.parametrize(
    ("content", "blank"),
    [
        ("", True),
        (" \t\r\n\u00a0\u3000", True),
        ([], True),
        ([{"type": "input_text", "text": ""}, {"type": "input_text", "text": "\n"}], True),
        ("x", False),
        ([{"type": "input_text", "text": " "}, {"type": "input_text", "text": "x"}], False),
        ([{"type": "refusal", "refusal": "no"}], False),
        ([{"type": "input_image", "image_url": "https://example.org/a.png"}], False),
        ([{"type": "input_text", "text": ""}, {"type": "input_file", "file_id": "f"}], False),
        ([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}], False),
    ],
)
def test_message_without_text_and_media_is_blank(content: Any, blank: bool) -> None:
    assert Item.of({"role": "user", "content": content}).is_blank is blank


@pytest.mark.parametrize(
    ("item", "is_call", "is_result"),
    [
        (call(), True, False),
        (call(type="custom_tool_call"), True, False),
        (Item.of({"type": "computer_call", "call_id": "a"}), True, False),
        (Item.of({"type": "some_new_call", "call_id": "a"}), True, False),
        (Item.of({"type": "some_new_call"}), False, False),
        (Item.of({"type": "web_search_call", "call_id": "a"}), False, False),
        (Item.of({"type": "mcp_call", "call_id": "a"}), False, False),
        (result(), False, True),
        (result(type="computer_call", output={"type": "computer_screenshot"}), False, True),
        (user(), False, False),
        (reasoning(), False, False),
    ],
)
def test_call_and_result_types_are_recognized(item: Item, is_call: bool, is_result: bool) -> None:
    assert (item.is_call, item.is_result) == (is_call, is_result)


def test_items_are_equal_only_if_their_bytes_are() -> None:
    spaced = Item(b'{"type": "note"}')
    assert spaced == Item(b'{"type": "note"}')
    assert hash(spaced) == hash(Item(b'{"type": "note"}'))
    assert spaced != Item(b'{"type":"note"}')
    assert spaced != spaced.raw


def test_item_repr_shows_the_json() -> None:
    assert repr(Item(raw({"type": "nöte"}))) == 'Item({"type": "nöte"})'


def test_message_item_is_built_in_responses_shape() -> None:
    assert message("assistant", "Hi", status="incomplete").fields == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        "status": "incomplete",
    }
    assert message("developer", "x").fields["content"] == [{"type": "input_text", "text": "x"}]
    assert "status" not in message("assistant", "Hi").fields


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "shell_call"])
def test_result_of_a_call_has_its_id_and_type(kind: str) -> None:
    made = result_of(call("call_7", kind), "done")
    assert made.is_result
    assert made.fields == {"type": f"{kind}_output", "call_id": "call_7", "output": "done"}


SYSTEM, DEVELOPER = message("system", "Be brief."), message("developer", "Be kind.")


def test_instructions_of_none_is_none() -> None:
    assert instructions_of(None) is None


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ("Be brief.", (SYSTEM,)),
        (DEVELOPER, (DEVELOPER,)),
        (
            {"role": "developer", "content": "Be kind."},
            (Item.of({"role": "developer", "content": "Be kind."}),),
        ),
        (["Be brief.", DEVELOPER], (SYSTEM, DEVELOPER)),
        ("", ()),
        (" \n", ()),
        ([], ()),
    ],
)
def test_instructions_are_built_from_texts_and_messages(given: Any, items: tuple[Item, ...]) -> None:
    assert instructions_of(given) == Instructions(items, is_lasting=True)
    assert instructions_of(None, given) == Instructions(items, is_lasting=False)


@pytest.mark.parametrize(
    "given", [user(), assistant(), call(), reasoning(), [SYSTEM, user()], {"role": "user"}]
)
def test_instructions_of_other_items_are_refused(given: Any) -> None:
    with pytest.raises(MalformedItems):
        instructions_of(given)


def test_instructions_lasting_and_once_together_are_refused() -> None:
    with pytest.raises(InvalidInput, match="not both"):
        instructions_of("Be brief.", "Be kind.")


@pytest.mark.parametrize(
    ("given", "after"),
    [
        (None, 3),
        (Instructions((SYSTEM,)), 7),
        (Instructions(()), 0),
        (Instructions((SYSTEM,), is_lasting=False), 3),
        (Instructions((), is_lasting=False), 3),
    ],
    ids=["none given", "lasting", "ended", "once", "none once"],
)
def test_instructions_in_force_change_only_by_lasting_ones(given: Instructions | None, after: int) -> None:
    assert instructed_after(given, 3, 7) == after
