"""Items are kept as given, and refused with a reason; instructions stay in force until replaced."""

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
def test_the_json_of_any_item_is_kept_verbatim(
    fields: dict[str, Any], ascii_only: bool, separators: tuple[str, str]
) -> None:
    given = json.dumps(fields, ensure_ascii=ascii_only, separators=separators).encode()
    item = Item(given)
    assert item.raw == given
    assert item.fields == fields
    assert list(item.fields) == list(fields)


@repeatable
@given(objects)
def test_a_mapping_becomes_the_same_json(fields: dict[str, Any]) -> None:
    item = Item.of(fields)
    assert json.loads(item.raw) == fields
    assert list(json.loads(item.raw)) == list(fields)
    assert Item(item.raw) == item


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**70), 10**40, 0.1, 1e300, -0.0])
def test_numbers_keep_their_value(number: float) -> None:
    item = Item.of({"type": "note", "n": number})
    assert item.fields["n"] == number
    assert json.loads(item.raw)["n"] == number


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_refused_and_not_made_null(number: float) -> None:
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
def test_what_is_not_an_item_is_refused_with_the_reason(given: bytes, reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        Item(given)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(MalformedItems):
        Item(b'{"type":"note","text":"\xff"}')


def test_a_role_that_is_not_a_text_is_refused() -> None:
    with pytest.raises(MalformedItems, match="`role`"):
        Item(b'{"type":"message","role":[],"content":"x"}')


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(MalformedItems):
        Item(b'{"type":"note","deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_nesting_is_bounded_so_that_every_reader_can_follow() -> None:
    nested: Any = []
    for _ in range(DEEPEST - 2):
        nested = [nested]
    assert Item.of({"type": "x", "x": nested}).fields["x"] == nested
    with pytest.raises(MalformedItems, match="nested more than 100 levels deep"):
        Item.of({"type": "x", "x": [nested]})


@pytest.mark.parametrize("call_id", ["", 5, [], {}])
def test_a_call_that_no_result_could_name_is_refused(call_id: Any) -> None:
    # Otherwise nothing can close it: result_of() raises, and with it every end of its turn.
    with pytest.raises(MalformedItems):
        result_of(Item.of({"type": "shell_call", "call_id": call_id}), "x")
    with pytest.raises(MalformedItems):
        Item.of({"type": "shell_call", "call_id": call_id})


@pytest.mark.parametrize("like", [5, None, b"bytes", ["x"], object()])
def test_only_texts_mappings_and_items_are_like_items(like: Any) -> None:
    with pytest.raises(MalformedItems, match="text or a mapping"):
        Item.of(like)


@pytest.mark.parametrize("value", [object(), {1, object()}, "\ud800", MappingProxyType({})])
def test_what_is_not_plain_json_is_refused(value: Any) -> None:
    with pytest.raises(MalformedItems, match="plain JSON"):
        Item.of({"type": "note", "value": value})


def test_a_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(MalformedItems):
        Item.of("half a pair: \ud800")


def test_a_text_is_a_user_message() -> None:
    item = Item.of("Where is it?")
    assert json.loads(item.raw) == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Where is it?"}],
    }
    assert item.is_user_message


def test_an_item_is_taken_as_it_is() -> None:
    item = user()
    assert Item.of(item) is item


def test_a_chat_shaped_message_gets_its_type() -> None:
    item = Item.of({"role": "system", "content": "Be kind.", "name": "house"})
    assert json.loads(item.raw) == {
        "type": "message",
        "role": "system",
        "content": "Be kind.",
        "name": "house",
    }


def test_one_or_several_become_items() -> None:
    mapping = {"role": "user", "content": "b"}
    assert items_of("a") == (Item.of("a"),)
    assert items_of(mapping) == (Item.of(mapping),)
    assert items_of(user()) == (user(),)
    assert items_of(each for each in ("a", mapping, user())) == (Item.of("a"), Item.of(mapping), user())
    assert items_of([]) == ()


def test_the_callers_mapping_can_change_afterwards() -> None:
    mapping = {"type": "note", "tags": ["a"]}
    item = Item.of(mapping)
    mapping["tags"].append("b")  # type: ignore[attr-defined]
    assert item.fields["tags"] == ["a"]


def test_what_a_reader_does_to_the_fields_changes_nothing() -> None:
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
def test_the_text_of_a_message_is_its_parts_joined(content: Any, text: str) -> None:
    assert Item.of({"role": "user", "content": content}).text == text


def test_only_messages_have_text() -> None:
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
def test_a_message_is_blank_when_it_says_and_shows_nothing(content: Any, blank: bool) -> None:
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
def test_calls_that_need_a_result_are_told_from_the_rest(item: Item, is_call: bool, is_result: bool) -> None:
    assert (item.is_call, item.is_result) == (is_call, is_result)


def test_equal_means_equal_bytes() -> None:
    spaced = Item(b'{"type": "note"}')
    assert spaced == Item(b'{"type": "note"}')
    assert hash(spaced) == hash(Item(b'{"type": "note"}'))
    assert spaced != Item(b'{"type":"note"}')
    assert spaced != spaced.raw


def test_repr_shows_the_json() -> None:
    assert repr(Item(raw({"type": "nöte"}))) == 'Item({"type": "nöte"})'


def test_messages_are_made_in_responses_shape() -> None:
    assert message("assistant", "Hi", status="incomplete").fields == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        "status": "incomplete",
    }
    assert message("developer", "x").fields["content"] == [{"type": "input_text", "text": "x"}]
    assert "status" not in message("assistant", "Hi").fields


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "shell_call"])
def test_a_result_answers_its_call_by_id_and_type(kind: str) -> None:
    made = result_of(call("call_7", kind), "done")
    assert made.is_result
    assert made.fields == {"type": f"{kind}_output", "call_id": "call_7", "output": "done"}


SYSTEM, DEVELOPER = message("system", "Be brief."), message("developer", "Be kind.")


def test_nothing_given_is_nothing() -> None:
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
def test_they_are_made_of_texts_and_messages(given: Any, items: tuple[Item, ...]) -> None:
    assert instructions_of(given) == Instructions(items, is_lasting=True)
    assert instructions_of(None, given) == Instructions(items, is_lasting=False)


@pytest.mark.parametrize(
    "given", [user(), assistant(), call(), reasoning(), [SYSTEM, user()], {"role": "user"}]
)
def test_nothing_else_can_instruct(given: Any) -> None:
    with pytest.raises(MalformedItems):
        instructions_of(given)


def test_a_turn_has_one_kind() -> None:
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
def test_the_last_lasting_ones_are_in_force(given: Instructions | None, after: int) -> None:
    assert instructed_after(given, 3, 7) == after
