"""Plain text of turns: file names, single lines, previews, titles, and shown texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import assistant, call, reasoning, repeatable, result, turn, user
from turnledger.model.item import Item, message
from turnledger.model.text.plain import (
    LONGEST,
    PREVIEW_LENGTH,
    TITLE_LENGTH,
    content_disposition,
    file_name,
    first_words,
    one_line,
    plain,
    preview_of,
    title_of,
    visible_texts,
)
from turnledger.model.turn import Turn


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Trip to Rome", "Trip to Rome.md"),
        ("../../etc/passwd", "etc passwd.md"),
        ("..", "otherwise.md"),
        (None, "otherwise.md"),
        ("CON", "otherwise.md"),
        ("a\x00b\nc\u202egnp.exe", "a b c gnp exe.md"),
        ("x" * 200, "x" * LONGEST + ".md"),
        ("日本語", "日本語.md"),
    ],
)
def test_file_name_keeps_only_safe_characters_of_the_title(title: str | None, name: str) -> None:
    assert file_name(title, "otherwise", "md") == name


@repeatable
@given(st.text())
def test_content_disposition_of_any_title_is_a_valid_header(title: str) -> None:
    header = content_disposition(file_name(title, "conv_1", "jsonl"))
    header.encode("ascii")
    assert header.count('"') == 2
    assert not set(header) & set("\r\n\\/")
    assert header.isprintable()


def test_content_disposition_has_an_ascii_and_a_unicode_name() -> None:
    assert content_disposition("für.md") == "attachment; filename=\"fur.md\"; filename*=UTF-8''f%C3%BCr.md"
    assert content_disposition("日本.md") == (
        "attachment; filename=\"chat.md\"; filename*=UTF-8''%E6%97%A5%E6%9C%AC.md"
    )


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("né \U0001f600 …", "né \U0001f600 …"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\u202eturned", r"\u202eturned"),
        ("\x9b31m\x00", r"\x9b31m\x00"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_plain_escapes_unprintable_characters(text: str, shown: str) -> None:
    assert plain(text) == shown


@repeatable
@given(st.text())
def test_plain_of_any_text_is_printable(text: str) -> None:
    assert plain(text).isprintable()
    assert plain(text) == text or "\\" in plain(text)


def turn_of(input: tuple[Item, ...], output: tuple[Item, ...]) -> Turn:
    return turn(input=input, output=output)


def test_preview_is_the_beginning_of_the_last_answer() -> None:
    turn = turn_of((user("q"),), (assistant("I look."), call("c"), result("c"), assistant("It is\nthere.")))
    assert preview_of(turn) == "It is there."


def test_preview_without_an_answer_is_the_question() -> None:
    assert preview_of(turn_of((user("q"),), (reasoning(), call("c")))) == "q"
    assert preview_of(turn_of((user("q"),), (call("c"), result("c"), message("developer", "note")))) == "q"


def test_preview_never_contains_tools_or_reasoning() -> None:
    assert preview_of(turn_of((result("c"),), (reasoning(), call("d")))) == ""


def test_preview_leaves_out_hidden_items() -> None:
    turn = turn_of((user("q"),), (assistant("a"), assistant("b")))
    assert [preview_of(turn, hidden) for hidden in ({2}, {1, 2}, {0, 1, 2})] == ["a", "q", ""]


def test_preview_is_cut_to_its_length() -> None:
    assert preview_of(turn_of((user("q"),), (assistant("x" * 1_000),))) == "x" * PREVIEW_LENGTH


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Where is my order?", "Where is my order?"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 20, "word word word word word word word word word word word word…"[:60]),
        ("Please\nhelp", "Please help"),
        ("\x1b]0;owned\x07", "]0;owned"),
        (" \n", None),
        ("", None),
    ],
)
def test_title_is_the_first_words_of_the_text(text: str, title: str | None) -> None:
    assert title_of(text) == title


def test_title_is_cut_between_words_with_an_ellipsis() -> None:
    title = title_of("one two three four five six seven eight nine ten eleven twelve thirteen")
    assert title == "one two three four five six seven eight nine ten eleven…"


@repeatable
@given(st.text())
def test_title_of_any_text_is_none_or_within_its_length(text: str) -> None:
    title = title_of(text)
    assert title is None or 0 < len(title) <= TITLE_LENGTH


def test_first_words_are_those_of_the_first_user_text() -> None:
    picture = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]})
    assert first_words((assistant("No."), picture, user("Yes"), user("Later"))) == "Yes"
    assert first_words((assistant("No."), picture)) is None


CALL = {"type": "function_call", "call_id": "c", "name": "tool", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "result"}


def seen_turn(*items: Item) -> Turn:
    return turn_of(items[:1], items[1:])


def test_seen_texts_are_those_of_user_and_assistant_in_order() -> None:
    parts = [
        {"type": "input_text", "text": "with "},
        {"type": "input_image"},
        {"type": "input_text", "text": "image"},
    ]
    item = Item.of({"role": "user", "content": parts})
    refused = Item.of({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})
    assert visible_texts(seen_turn(item, message("assistant", "Yes."), refused), ()) == [
        "with image",
        "Yes.",
        "No.",
    ]


def test_seen_texts_leave_out_tools_reasoning_and_instructions() -> None:
    reasoning = Item.of({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]})
    notes = [message("system", "note"), message("developer", "note"), message("assistant", "")]
    assert visible_texts(seen_turn(*notes, reasoning, Item.of(CALL), Item.of(RESULT)), ()) == []


def test_seen_texts_leave_out_hidden_items() -> None:
    seen = seen_turn(message("user", "one"), message("assistant", "two"), message("assistant", "three"))
    assert visible_texts(seen, {1}) == ["one", "three"]
