"""Items are kept as given or refused with a reason, and follow each other in a well-formed history;
instructions stay in force until replaced."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import (
    CALL_TYPES,
    assistant,
    call,
    histories,
    json_values,
    looks,
    raw,
    reasoning,
    repeatable,
    result,
    user,
)
from turnledger.errors import InvalidInput, MalformedItems, MissingToolResults, NoNewInput, StoreCorrupt
from turnledger.model.item import (
    DEEPEST,
    NOT_ANSWERED,
    NOT_STARTED,
    OUTCOME_UNKNOWN,
    Item,
    admit,
    check_input,
    check_resent,
    items_of,
    message,
    object_of,
    open_calls,
    raw_object,
    result_of,
    without_answers,
    without_repeated_answers,
)
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
        (b'{"type":"note","text":"\xff"}', "JSON object"),
        (b'{"type":"note","deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "JSON object"),
        (b"{}", "`type`"),
        (b'{"type":""}', "`type`"),
        (b'{"type":null}', "`type`"),
        (b'{"type":5}', "`type`"),
        (b'{"type":"message","content":"x"}', "`role`.*assistant, developer, system, user"),
        (b'{"type":"message","role":"tool","content":"x"}', "`role`"),
        (b'{"type":"message","role":null,"content":"x"}', "`role`"),
        (b'{"type":"message","role":[],"content":"x"}', "`role`"),
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


NO_JSON = [object(), {1, object()}, "\ud800", MappingProxyType({}), math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", NO_JSON)
def test_item_with_a_value_that_is_not_plain_json_is_refused(value: Any) -> None:
    with pytest.raises(MalformedItems, match="plain JSON"):
        Item.of({"type": "note", "nested": [{"value": value}]})


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


def test_result_with_an_unknown_outcome_is_recognized() -> None:
    results = [result_of(call("call_7"), output) for output in ("done", NOT_STARTED, OUTCOME_UNKNOWN)]
    assert [each.has_unknown_outcome for each in results] == [False, False, True]
    assert not message("user", OUTCOME_UNKNOWN).has_unknown_outcome


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


# Well-formed histories: each call answered per occurrence and in order, reasoning before its item.


def check_and_admit(pending: Sequence[Item], new: Sequence[Item]) -> tuple[Item, ...]:
    """As the ledger does: what needs no head is checked first."""
    check_input(new)
    return admit(pending, new)


def counted_open(items: list[Item]) -> list[Item]:
    """The oracle: an id that was called once more than answered is open, at its last call."""
    last_calls = {item.call_id: place for place, item in enumerate(items) if item.is_call}
    balance = dict.fromkeys(last_calls, 0)
    for item in items:
        if item.is_call or item.is_result:
            balance[item.call_id] += 1 if item.is_call else -1
    return [items[place] for place in sorted(last_calls[each] for each in balance if balance[each])]


@repeatable
@given(histories)
def test_open_calls_of_a_well_formed_history_are_its_unanswered_calls(items: list[Item]) -> None:
    assert list(open_calls(items)) == counted_open(items)


@repeatable
@given(histories, st.data())
def test_result_without_a_call_is_refused_at_any_place(items: list[Item], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(items)))
    with pytest.raises(MalformedItems):
        open_calls([*items[:at], result("never called"), *items[at:]])


@repeatable
@given(histories)
def test_result_whose_call_was_removed_is_refused(items: list[Item]) -> None:
    answered = [item for item in items if item.is_call and item not in open_calls(items)]
    for lost in answered:
        with pytest.raises(MalformedItems):
            open_calls([item for item in items if item is not lost])


@pytest.mark.parametrize("kind", CALL_TYPES)
@pytest.mark.parametrize("other", CALL_TYPES)
def test_result_of_another_type_than_its_call_is_refused(kind: str, other: str) -> None:
    items = [call(type=kind), result(type=other)]
    if kind == other:
        assert open_calls(items) == ()
    else:
        with pytest.raises(MalformedItems, match=f"{other}_output. Send a {kind}_output"):
            open_calls(items)


HOSTED = Item.of({"type": "web_search_call", "id": "ws", "call_id": "a"})


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ([call(), result(), call(), result()], ()),
        ([call(), result(), call()], (call(),)),
        ([HOSTED], ()),
        ([reasoning(), reasoning(), assistant()], ()),
        ([reasoning(), call()], (call(),)),
        ([reasoning(), HOSTED], ()),
        ([reasoning(), Item.of({"type": "some.day"})], ()),
    ],
)
def test_well_formed_history_leaves_these_calls_open(items: list[Item], left: tuple[Item, ...]) -> None:
    assert open_calls(items) == left


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([call(), call()], "a is reused"),
        ([call(), call(type="shell_call"), result(), result(type="shell_call")], "a is reused"),
        ([result(), call()], "no such call"),
        ([call(), result(), result()], "no such call"),
        ([reasoning(), user()], "followed by a message"),
        ([reasoning(), message("system", "x")], "followed by a message"),
        ([reasoning(), message("developer", "x")], "followed by a message"),
        ([call(), reasoning(), result()], "followed by a function_call_output"),
        ([assistant(), reasoning()], "at the end"),
    ],
)
def test_history_that_is_not_well_formed_is_refused_with_the_reason(items: list[Item], reason: str) -> None:
    with pytest.raises(MalformedItems, match=reason):
        open_calls(items)


# What a request may bring.

BLANK = Item.of({"role": "user", "content": [{"type": "input_text", "text": " \n"}]})
PICTURE = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]})
SYSTEM = Item.of({"role": "system", "content": "Be kind."})
PENDING = (call("a"), call("b", "custom_tool_call"))
ANSWERS = (result("a"), result("b", "custom_tool_call"))
STATED = Item.of({"type": "custom_tool_call_output", "call_id": "b", "output": NOT_ANSWERED})


@pytest.mark.parametrize("new", [[], [BLANK], [SYSTEM], [assistant()], [BLANK, SYSTEM, assistant()]])
@pytest.mark.parametrize("pending", [(), PENDING])
def test_input_without_new_content_is_refused(pending: tuple[Item, ...], new: list[Item]) -> None:
    with pytest.raises(NoNewInput):
        check_and_admit(pending, new)


@pytest.mark.parametrize(
    ("pending", "new", "admitted"),
    [
        *[((), each, tuple(each)) for each in ([user()], [PICTURE], [SYSTEM, user()], [user(), BLANK])],
        ((), [user(), assistant()], (user(), assistant())),
        (PENDING, ANSWERS, ANSWERS),
        (PENDING, ANSWERS[::-1], ANSWERS[::-1]),
        (PENDING, [user(), result("a")], (result("a"), STATED, user())),
        (PENDING, [user()], (result("a", output=NOT_ANSWERED), STATED, user())),
        (PENDING, [SYSTEM, *ANSWERS, user()], (*ANSWERS, SYSTEM, user())),
    ],
)
def test_input_is_admitted_with_all_results_before_its_messages(
    pending: tuple[Item, ...], new: Sequence[Item], admitted: tuple[Item, ...]
) -> None:
    assert check_and_admit(pending, new) == admitted


@pytest.mark.parametrize("new", [[result("a")], [result("a"), BLANK]])
def test_input_with_some_pending_results_is_refused_and_names_the_missing(new: list[Item]) -> None:
    with pytest.raises(MissingToolResults, match="tool call b") as caught:
        check_and_admit(PENDING, new)
    assert caught.value.missing == ("b",)


@pytest.mark.parametrize(
    ("pending", "new", "reason"),
    [
        (PENDING, [user(), result("c")], "no such call"),
        (PENDING, [*ANSWERS, result("a")], "no such call"),
        (PENDING, [user(), *ANSWERS, result("c")], "no such call"),
        (PENDING, [result("a", "shell_call"), user()], "is a shell_call_output"),
        ((), [result(), user()], "no such call"),
        ((), [user(), call("z")], "only models"),
        ((), [user(), reasoning()], "only models"),
    ],
)
def test_input_that_no_head_admits_is_refused_with_the_reason(
    pending: tuple[Item, ...], new: list[Item], reason: str
) -> None:
    with pytest.raises(MalformedItems, match=reason):
        check_and_admit(pending, new)


@repeatable
@given(histories, st.booleans(), st.data())
def test_admitted_input_leaves_no_call_open_and_keeps_every_new_item(
    items: list[Item], speaks: bool, data: st.DataObject
) -> None:
    pending = open_calls(items)
    answered = data.draw(st.lists(st.sampled_from(pending), unique=True)) if pending else []
    new = [result(each.call_id or "", each.type) for each in answered] + ([user()] if speaks else [])
    new = data.draw(st.permutations(new))
    missing = [each.call_id for each in pending if each not in answered]
    if not new:
        with pytest.raises(NoNewInput):
            check_and_admit(pending, new)
    elif missing and not speaks:
        with pytest.raises(MissingToolResults) as caught:
            check_and_admit(pending, new)
        assert list(caught.value.missing) == missing
    else:
        admitted = check_and_admit(pending, new)
        assert open_calls((*pending, *admitted)) == ()
        assert [each for each in admitted if each in new] == sorted(new, key=lambda each: not each.is_result)
        assert [each.call_id for each in admitted if each not in new] == missing
        assert all(each.fields["output"] == NOT_ANSWERED for each in admitted if each not in new)


# What a client sends as its history


def test_resent_input_without_new_content_is_refused() -> None:
    for new in ([], [assistant()], [user(" ")], [call("a")]):
        with pytest.raises(NoNewInput):
            check_resent(new)
    check_resent([call("a"), result("a")])
    check_resent([assistant(), user()])


def test_resent_calls_left_unanswered_are_closed_before_the_next_message() -> None:
    admitted = admit((), [user("1"), call("a"), call("b"), result("b"), user("2")])
    assert admitted == (
        *(user("1"), call("a"), call("b"), result("b")),
        *(result("a", output=NOT_ANSWERED), user("2")),
    )


def test_resent_result_after_a_message_is_accepted_unchanged() -> None:
    new = (call("a"), user("1"), result("a"))
    assert admit((), new) == new


def test_resent_call_at_the_end_raises_missing_tool_results() -> None:
    with pytest.raises(MissingToolResults) as caught:
        admit((), [user(), call("a")])
    assert caught.value.missing == ("a",)


@repeatable
@given(histories, histories)
def test_resent_history_is_admitted_whole_and_well_formed_or_refused(
    before: list[Item], new: list[Item]
) -> None:
    pending = open_calls(before)
    try:
        admitted = admit(pending, new)
    except (MissingToolResults, MalformedItems):
        return
    assert open_calls((*pending, *admitted)) == ()
    stated = list(admitted)
    for item in new:
        stated.remove(item)
    assert all(item.is_result and item.fields["output"] == NOT_ANSWERED for item in stated)
    calls = [item for item in new if not item.is_result]
    assert [item for item in admitted if not item.is_result] == calls


@repeatable
@given(histories)
def test_without_answers_removes_only_results_of_earlier_calls(new: list[Item]) -> None:
    kept = without_answers([result("of before"), *new])
    assert kept == tuple(new)


def test_resent_results_already_recorded_are_removed_from_the_input() -> None:
    new = (result("a"), result("b"), call("a"), result("a", output="other"), user())
    assert without_repeated_answers([result("a"), user()], new) == new[1:]
    assert without_repeated_answers([user()], new) == new


@pytest.mark.parametrize("many", [100, 400])
def test_admission_of_a_long_history_with_calls_takes_linear_time(many: int) -> None:
    calls = [call(f"c{number}") for number in range(many)]
    results = [result(f"c{number}") for number in range(many)]
    apart = [item for each in calls for item in (each, user())]
    assert looks(lambda: admit((), apart)) < 60 * many
    assert looks(lambda: admit((), [*calls, *[user()] * many, *results])) < 60 * many
    assert looks(lambda: admit(calls, [*results, user()])) < 60 * many
    assert looks(lambda: without_repeated_answers(results, results)) < 60 * many


@repeatable
@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_json_object_survives_a_round_trip(values: dict[str, Any]) -> None:
    assert object_of(msgspec.Raw(raw_object("details", values))) == values


endless: list[Any] = []


endless.append(endless)


@pytest.mark.parametrize(
    "values",
    [
        5,
        [],
        {"a": object()},
        {"a": "\ud800"},
        {"a": msgspec.Raw(b"}")},
        {"a": msgspec.Raw(b'"\xff"')},
        {"a": endless},
        {"a": msgspec.json.decode(b"[" * 101 + b"]" * 101)},
        {("a", "b"): 1},
    ],
)
def test_value_that_is_not_a_json_object_is_refused_by_name(values: Any) -> None:
    with pytest.raises(InvalidInput, match="details"):
        raw_object("details", values)


@pytest.mark.parametrize("raw", [b"[]", b"5", b"{", b'{"a":"\xff"}'])
def test_stored_json_object_that_is_invalid_is_corrupt(raw: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        object_of(msgspec.Raw(raw))
