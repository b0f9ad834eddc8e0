"""A turn keeps its items byte for byte, separates input from output, counts in blocks, shows its texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import any_items, assistant, call, reasoning, repeatable, result, turn, user
from turnledger.errors import StoreCorrupt
from turnledger.model.conversation import BLOCK, block_bytes
from turnledger.model.item import Item, message
from turnledger.model.turn import (
    PREVIEW_LENGTH,
    TITLE_LENGTH,
    Turn,
    TurnKind,
    first_words,
    one_line,
    preview_of,
    title_of,
    visible_texts,
)

some_items = st.lists(any_items, min_size=1, max_size=5)


@repeatable
@given(some_items, some_items)
def test_turn_returns_its_input_and_output_byte_for_byte(input: list[Item], output: list[Item]) -> None:
    found = turn(input=input, output=output)
    assert found.input == tuple(input)
    assert found.output == tuple(output)
    assert found.items == (*input, *output)


@repeatable
@given(some_items, some_items)
def test_turn_body_is_the_same_for_the_same_items(input: list[Item], output: list[Item]) -> None:
    first = turn(input=input, output=output)
    assert turn(input=first.input, output=first.output).body == first.body


def split_turn(input: Item, *output: Item) -> Turn:
    return turn(input=(input,), output=output)


def test_turn_text_is_the_joined_text_of_the_assistant() -> None:
    assert split_turn(user("q"), assistant("a"), call(), result(), assistant("b")).text == "ab"
    assert split_turn(user("q"), call()).text == ""


def test_turn_instructions_are_not_items_and_take_no_bytes_when_absent() -> None:
    plain = turn()
    assert (plain.instructions, plain.instructed) == (None, 0)
    assert b"instruct" not in plain.body
    given = turn(instructions=(user("Be brief."),), instructed=3)
    assert (given.instructions, given.instructed) == ((user("Be brief."),), 3)
    assert given.items == plain.items
    cleared = turn(instructions=())
    assert (cleared.instructions, cleared.instructed) == ((), 0)


def test_turn_body_from_before_instructions_existed_is_readable() -> None:
    old = with_body(b'{"v":1,"input":0,"items":[]}')
    assert (old.instructions, old.instructed) == (None, 0)


def test_turn_details_survive_storage_and_take_no_bytes_when_absent() -> None:
    plain = turn()
    assert plain.details == {}
    assert b"details" not in plain.body
    given = with_body(plain.body[:-1] + b',"details":{"model":"m","usage":{"total_tokens":3}}}')
    assert given.details == {"model": "m", "usage": {"total_tokens": 3}}
    assert given.items == plain.items


def test_turn_is_immutable() -> None:
    with pytest.raises(AttributeError):
        turn().number = 2  # type: ignore[misc]


def test_turns_with_the_same_fields_are_equal() -> None:
    assert turn() == turn()
    assert hash(turn()) == hash(turn())
    assert turn(1) != turn(2)


def with_body(body: bytes) -> Turn:
    given = turn()
    return Turn(given.id, given.branch, 1, None, TurnKind.COMPLETED, 1, 2, body)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"v":1,"input":0}', b'{"v":1,"input":0,"items":[{"type":5}]}']
)
def test_turn_with_a_damaged_body_raises_store_corrupt_on_access(body: bytes) -> None:
    damaged = with_body(body)
    with pytest.raises(StoreCorrupt):
        _ = damaged.items[0].type


def test_turn_with_hidden_items_hides_them_from_chat_clients_only() -> None:
    whole = turn(input=[user("q")], output=[assistant("a")])
    assert len(whole.shown.entries) == 2
    hiding = whole.with_hidden(frozenset({1}))
    assert (hiding, hiding.items) == (whole, whole.items)
    assert [entry.pieces for entry in hiding.shown.entries] == [("q",)]
    assert [entry.pieces for entry in whole.shown.entries] == [("q",), ("a",)]
    assert (hiding.shown.hidden, whole.shown.hidden) == ({1}, frozenset())


@pytest.mark.parametrize(
    ("size", "counted"),
    [(0, 0), (1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK), (5 * BLOCK - 1, 5 * BLOCK)],
)
def test_size_in_blocks_is_rounded_up(size: int, counted: int) -> None:
    assert block_bytes(size) == counted


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Where is my order?", "Where is my order?"),
        ("  Where\n\n is\tmy\r\norder? ", "Where is my order?"),
        ("a\x00b\x1b[31mc\x7fd", "ab[31mcd"),
        ("\u202eevil\u202c \u2066x\u2069", "evil x"),
        ("line\u2028separated\u0085too", "line separated too"),
        ("👩\u200d💻 at work", "👩\u200d💻 at work"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("", ""),
        (" \n ", ""),
        ("\x00\x01", ""),
    ],
)
def test_one_line_collapses_white_space_and_drops_control_characters(text: str, line: str) -> None:
    assert one_line(text, 40) == line


def test_one_line_is_cut_to_its_length() -> None:
    assert one_line("abc def", 4) == "abc"
    assert one_line("abc def", 5) == "abc d"
    assert one_line(" " * 10_000 + "abc", 5) == "abc"


@repeatable
@given(st.text(), st.integers(1, 50))
def test_one_line_of_any_text_is_one_line_within_its_length(text: str, length: int) -> None:
    line = one_line(text, length)
    assert len(line) <= length
    assert len(line.splitlines()) < 2
    assert line == " ".join(line.split())
    assert one_line(line, length) == line


QUESTION = user("q")


@pytest.mark.parametrize(
    ("items", "preview"),
    [
        (
            (QUESTION, assistant("I look."), call("c"), result("c"), assistant("It is\nthere.")),
            "It is there.",
        ),
        ((QUESTION, reasoning(), call("c")), "q"),
        ((QUESTION, call("c"), result("c"), message("developer", "note")), "q"),
        ((result("c"), reasoning(), call("d")), ""),
        ((QUESTION, assistant("x" * 1_000)), "x" * PREVIEW_LENGTH),
    ],
    ids=["the last answer", "no answer", "no answer but a note", "only tools", "long"],
)
def test_preview_is_the_beginning_of_the_last_text(items: tuple[Item, ...], preview: str) -> None:
    assert preview_of(split_turn(*items)) == preview


def test_preview_leaves_out_hidden_items() -> None:
    turn = split_turn(QUESTION, assistant("a"), assistant("b"))
    assert [preview_of(turn, hidden) for hidden in ({2}, {1, 2}, {0, 1, 2})] == ["a", "q", ""]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Where is my order?", "Where is my order?"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 20, "word word word word word word word word word word word word…"[:60]),
        (
            "one two three four five six seven eight nine ten eleven twelve thirteen",
            "one two three four five six seven eight nine ten eleven…",
        ),
        ("Please\nhelp", "Please help"),
        ("\x1b]0;owned\x07", "]0;owned"),
        (" \n", None),
        ("", None),
    ],
)
def test_title_is_the_first_words_of_the_text(text: str, title: str | None) -> None:
    assert title_of(text) == title


@repeatable
@given(st.text())
def test_title_of_any_text_is_none_or_within_its_length(text: str) -> None:
    title = title_of(text)
    assert title is None or 0 < len(title) <= TITLE_LENGTH


def test_first_words_are_those_of_the_first_user_text() -> None:
    picture = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]})
    assert first_words((assistant("No."), picture, user("Yes"), user("Later"))) == "Yes"
    assert first_words((assistant("No."), picture)) is None


def test_seen_texts_are_those_of_user_and_assistant_in_order() -> None:
    parts = [
        {"type": "input_text", "text": "with "},
        {"type": "input_image"},
        {"type": "input_text", "text": "image"},
    ]
    item = Item.of({"role": "user", "content": parts})
    refused = Item.of({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})
    texts = visible_texts(split_turn(item, message("assistant", "Yes."), refused), ())
    assert texts == ["with image", "Yes.", "No."]


def test_seen_texts_leave_out_tools_reasoning_and_instructions() -> None:
    notes = [message("system", "note"), message("developer", "note"), message("assistant", "")]
    assert visible_texts(split_turn(*notes, reasoning(), call(), result()), ()) == []


def test_seen_texts_leave_out_hidden_items() -> None:
    seen = split_turn(message("user", "one"), message("assistant", "two"), message("assistant", "three"))
    assert visible_texts(seen, {1}) == ["one", "three"]
