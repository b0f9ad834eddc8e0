"""Projection of turns and chat messages to a common form in which they can be compared."""

import json
import unicodedata
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from turnledger.model.item import NOT_ANSWERED, Item
from turnledger.model.messages.projection import (
    UNMATCHED,
    ClientForm,
    Entry,
    ReducedMessage,
    canonicalize,
    items_before,
    normalize_text,
    plain_text,
    project_turn,
    reduce_message,
    same_calls,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:x"}}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": " hi\n"}, ReducedMessage("user", "hi")),
        ({"role": "user", "content": "hi", "name": "ann"}, ReducedMessage("user", "hi")),
        (
            {"role": "user", "content": [{"text": "a "}, {"type": "text", "text": "b"}]},
            ReducedMessage("user", "a b"),
        ),
        ({"role": "user", "content": [IMAGE]}, ReducedMessage("user", "", (), ("data:x",))),
        ({"role": "user", "content": " "}, ReducedMessage(UNMATCHED, "")),
        ({"role": "system", "content": "Be kind."}, ReducedMessage(UNMATCHED, "Be kind.")),
        ({"role": "developer", "content": "Be kind."}, ReducedMessage(UNMATCHED, "Be kind.")),
        ({"role": "assistant", "content": None}, ReducedMessage(UNMATCHED, "")),
        ({"role": "assistant", "content": None, "refusal": "No."}, ReducedMessage("assistant", "No.")),
        (
            {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None},
            ReducedMessage("assistant", "x"),
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]},
            ReducedMessage("assistant", "", (("look", "{}"),)),
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "custom": {"name": "sh", "input": "ls"}}]},
            ReducedMessage("assistant", "", (("sh", "ls"),)),
        ),
        (
            {"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}},
            ReducedMessage("assistant", "", (("look", "{}"),)),
        ),
        ({"role": "tool", "tool_call_id": "a", "content": " 1 "}, ReducedMessage("tool", "1", (), (), "a")),
        ({"role": "tool", "content": ""}, ReducedMessage("tool", "")),
        ({"role": "function", "name": "look", "content": "1"}, ReducedMessage("tool", "1")),
    ],
)
def test_projection_of_a_message_is_its_role_text_calls_and_media(
    message: dict[str, Any], expected: ReducedMessage
) -> None:
    assert reduce_message(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": None, "content": "x"},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": ["x"]},
        {"role": "assistant", "tool_calls": [{"id": "a"}]},
    ],
)
def test_projection_of_an_invalid_message_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(MalformedItems):
        reduce_message(message)


@repeatable
@given(st.text(), st.sampled_from(["NFC", "NFD"]), st.text(" \n\t", max_size=3))
def test_comparable_text_ignores_unicode_form_and_surrounding_white_space(
    text: str, form: Any, space: str
) -> None:
    assert normalize_text(space + unicodedata.normalize(form, text) + space) == normalize_text(text)


def test_comparable_text_keeps_white_space_within_it() -> None:
    assert normalize_text("a b") != normalize_text("a  b")


@repeatable
@given(st.dictionaries(st.text(), json_values, max_size=4), st.sampled_from([None, 2]))
def test_canonical_arguments_ignore_key_order_and_layout(
    arguments: dict[str, Any], indent: int | None
) -> None:
    backwards = dict(reversed(arguments.items()))
    assert canonicalize(json.dumps(arguments)) == canonicalize(
        json.dumps(backwards, indent=indent, ensure_ascii=False)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("{}", ""), ("{}", " "), ('{"x":1.0}', '{"x": 1}'), ("ls -l", " ls -l\n"), ('{"x":1e3}', '{"x":1000}')],
)
def test_equal_arguments_in_different_notation_are_the_same_call(one: str, other: str) -> None:
    assert same_calls([("look", one)], [("look", other)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"x":1}', '{"x":true}'),
        ('{"x":1}', '{"x":"1"}'),
        ('{"x":null}', "{}"),
        ("[1,2]", "[2,1]"),
        ("ls", "ls -l"),
        ("[" * 10_000, "[" * 9_999),
    ],
)
def test_different_arguments_or_names_are_different_calls(one: str, other: str) -> None:
    assert not same_calls([("look", one)], [("look", other)])
    assert not same_calls([("look", one)], [("see", one)])
    assert not same_calls([("look", one)], [])


def test_plain_text_is_none_for_a_message_with_more_than_text() -> None:
    assert plain_text({"role": "user", "content": " x "}, "user") == "x"
    assert plain_text({"role": "user", "content": [{"type": "text", "text": "x"}]}, "user") == "x"
    assert plain_text({"role": "assistant", "content": "x"}, "user") is None
    assert plain_text({"role": "assistant", "content": "x", "tool_calls": [{}]}, "assistant") is None
    assert plain_text({"role": "user", "content": [IMAGE]}, "user") is None
    assert plain_text({"role": "user", "content": [5]}, "user") is None


def test_plain_turn_is_shown_as_question_and_answer() -> None:
    found = project_turn([user(" q ")], [reasoning(), assistant("a")])
    assert found.input == (Entry("user", ("q",)),)
    assert found.output == (Entry("assistant", ("a",)),)
    assert found.echo == [{"role": "user", "content": " q "}, {"role": "assistant", "content": "a"}]
    assert found.plain == ("q", "a")
    assert found.whole is None


def test_consecutive_messages_are_pieces_of_one_entry() -> None:
    found = project_turn([user("q"), user("and")], [assistant("a"), assistant("b")])
    assert found.entries == (Entry("user", ("q", "and")), Entry("assistant", ("a", "b")))
    assert found.echo is not None
    assert found.echo[-1] == {"role": "assistant", "content": "ab"}
    assert found.plain is None


def test_calls_run_by_the_server_are_left_out_of_the_seen_form() -> None:
    found = project_turn([user()], [assistant("a"), call("a"), result("a"), assistant("b"), call("c")])
    assert found.output == (Entry("assistant", ("a", "b"), (("look", "{}"),)),)
    assert found.whole is not None
    assert [entry.role for entry in found.whole] == ["user", "assistant", "tool", "assistant"]


def test_parallel_calls_run_by_the_server_are_all_paired() -> None:
    found = project_turn([user()], [call("a"), call("b"), result("b"), result("a"), assistant("c")])
    assert found.output == (Entry("assistant", ("c",)),)


def test_repeated_call_ids_are_paired_per_occurrence() -> None:
    found = project_turn([result("a", output="1"), user()], [call("a"), result("a"), call("a")])
    assert found.input[0] == Entry("tool", ("1",), (), (), ("a",))
    assert found.output == (Entry("assistant", (), (("look", "{}"),)),)


def test_system_and_blank_messages_are_not_shown() -> None:
    found = project_turn([Item.of({"role": "system", "content": "Be kind."}), user(" ")], [assistant("a")])
    assert found.entries == (Entry("assistant", ("a",)),)


def test_entry_may_be_absent_only_if_it_holds_just_images_or_stated_results() -> None:
    assert Entry("user", (), (), ("data:x",)).may_be_absent
    assert Entry("tool", (NOT_ANSWERED,)).may_be_absent
    assert not Entry("tool", (NOT_ANSWERED, "1")).may_be_absent
    assert not Entry("user", ("q",)).may_be_absent
    assert not Entry("assistant", (), (("look", "{}"),)).may_be_absent


def test_images_and_files_are_equal_in_either_shape() -> None:
    stored = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]})
    file = {"type": "input_file", "file_id": "f"}
    other = Item.of({"role": "user", "content": [{"type": "input_text", "text": "see"}, file]})
    assert (
        project_turn([stored], []).input[0].media
        == reduce_message({"role": "user", "content": [IMAGE]}).media
    )
    sent = {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}
    assert project_turn([other], []).input[0].media == reduce_message(sent).media == ("f",)


def test_unfinished_turn_has_no_echo() -> None:
    assert project_turn([user()], [assistant()], is_complete=False).echo is None


@repeatable
@given(histories, st.integers(0, 14))
def test_echo_has_the_text_and_calls_of_the_entries(items: list[Item], input_count: int) -> None:
    found = project_turn(items[:input_count], items[input_count:])
    if found.echo is None:
        return
    reduced = [reduce_message(message) for message in found.echo]
    text = "".join("".join(entry.pieces) for entry in found.entries)
    assert "".join(each.text for each in reduced) == text
    assert [call for each in reduced for call in each.calls] == [
        call for entry in found.entries for call in entry.calls
    ]


# What is hidden


def words(entries: Iterable[Entry]) -> list[str]:
    return ["".join(entry.pieces) for entry in entries]


def test_hidden_item_is_left_out_of_the_seen_form_and_kept_in_the_held_form() -> None:
    hidden = project_turn((user("q"), user("r")), (assistant("a"),), hidden=frozenset({0}))
    assert words(hidden.entries) == ["r", "a"]
    assert [words(way.entries) for way in hidden.held] == [["qr", "a"]]
    assert hidden.echo is None
    assert hidden.entries_in(ClientForm.SEEN) == hidden.entries
    assert hidden.entries_in(ClientForm.HELD) == hidden.held[0].entries


def test_hidden_items_may_be_held_in_any_combination_up_to_a_limit() -> None:
    few = project_turn((user("q"),), (assistant("a"),), hidden=frozenset({0, 1}))
    assert sorted(words(form) for form in few.forms) == [[], ["a"], ["q"], ["q", "a"]]
    many = project_turn(tuple(user(f"{at}") for at in range(6)), (), hidden=frozenset(range(6)))
    assert [words(form) for form in many.forms] == [[], ["012345"]]


def test_hidden_call_run_by_the_server_is_in_no_form() -> None:
    made = (assistant("One."), call("s"), result("s"), assistant("Two."))
    hidden = project_turn((user("q"),), made, hidden=frozenset({2, 3}))
    assert words(hidden.entries) == ["q", "One.Two."]
    assert hidden.whole is None
    assert [words(way.entries) for way in hidden.held] == [["q", "One.Two."]]
    assert len(hidden.forms) == 2


def test_turn_without_hidden_items_has_one_form() -> None:
    plain = project_turn((user("q"),), (assistant("a"),))
    assert (plain.held, plain.variants, plain.forms) == ((), (plain,), (plain.entries,))
    assert plain.entries_in(ClientForm.HELD) == plain.entries_in(ClientForm.WHOLE) == plain.entries


def test_items_before_an_entry_are_those_that_precede_its_piece() -> None:
    input = (user("q"), user("r"), assistant("a"))
    output = (assistant("One."), call("s"), result("s"), assistant("Two."))

    def before(form: ClientForm, place: int, piece: int = 0, hidden: frozenset[int] = frozenset()) -> int:
        items = items_before(input, output, hidden, (form, place, piece))
        assert items == tuple((*input, *output)[: len(items)])
        return len(items)

    assert [before(ClientForm.SEEN, place) for place in range(3)] == [0, 2, 3]
    assert before(ClientForm.SEEN, 0, 1) == 1
    assert before(ClientForm.SEEN, 2, 1) == 6
    assert [before(ClientForm.WHOLE, place) for place in range(5)] == [0, 2, 3, 5, 6]
    assert before(ClientForm.WHOLE, 2, 1) == 4
    assert items_before(input, output, {0}, (ClientForm.SEEN, 1, 0)) == input[1:2]
    assert items_before(input, output, {0}, (ClientForm.HELD, 0, 1)) == ()
