"""Plain text made of turns: file names, single lines, previews, titles, and what people see."""

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
    seen_texts,
    title_of,
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
def test_names_are_made_of_letters(title: str | None, name: str) -> None:
    assert file_name(title, "otherwise", "md") == name


@repeatable
@given(st.text())
def test_no_title_breaks_a_header(title: str) -> None:
    header = content_disposition(file_name(title, "conv_1", "jsonl"))
    header.encode("ascii")
    assert header.count('"') == 2
    assert not set(header) & set("\r\n\\/")
    assert header.isprintable()


def test_both_forms_of_a_name_are_sent() -> None:
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
def test_white_space_is_collapsed_and_controls_are_left_out(text: str, line: str) -> None:
    assert one_line(text, 40) == line


def test_it_is_cut() -> None:
    assert one_line("abc def", 4) == "abc"
    assert one_line("abc def", 5) == "abc d"
    assert one_line(" " * 10_000 + "abc", 5) == "abc"


@repeatable
@given(st.text(), st.integers(1, 50))
def test_it_is_always_one_line_and_never_longer(text: str, length: int) -> None:
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
def test_what_is_not_printable_is_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


@repeatable
@given(st.text())
def test_nothing_but_printable_text_is_left(text: str) -> None:
    assert plain(text).isprintable()
    assert plain(text) == text or "\\" in plain(text)


def turn_of(input: tuple[Item, ...], output: tuple[Item, ...]) -> Turn:
    return turn(input=input, output=output)


def test_it_is_how_the_last_answer_begins() -> None:
    said = turn_of((user("q"),), (assistant("I look."), call("c"), result("c"), assistant("It is\nthere.")))
    assert preview_of(said) == "It is there."


def test_without_an_answer_it_is_the_question() -> None:
    assert preview_of(turn_of((user("q"),), (reasoning(), call("c")))) == "q"
    assert preview_of(turn_of((user("q"),), (call("c"), result("c"), message("developer", "note")))) == "q"


def test_tools_and_thoughts_are_never_in_it() -> None:
    assert preview_of(turn_of((result("c"),), (reasoning(), call("d")))) == ""


def test_what_is_hidden_is_not_in_it() -> None:
    said = turn_of((user("q"),), (assistant("a"), assistant("b")))
    assert [preview_of(said, hidden) for hidden in ({2}, {1, 2}, {0, 1, 2})] == ["a", "q", ""]


def test_it_is_short() -> None:
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
def test_the_first_words_are_the_title(text: str, title: str | None) -> None:
    assert title_of(text) == title


def test_it_is_cut_between_words_and_says_so() -> None:
    title = title_of("one two three four five six seven eight nine ten eleven twelve thirteen")
    assert title == "one two three four five six seven eight nine ten eleven…"


@repeatable
@given(st.text())
def test_it_is_never_too_long_and_never_empty(text: str) -> None:
    title = title_of(text)
    assert title is None or 0 < len(title) <= TITLE_LENGTH


def test_the_first_text_of_a_person_gives_it() -> None:
    picture = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]})
    assert first_words((assistant("No."), picture, user("Yes"), user("Later"))) == "Yes"
    assert first_words((assistant("No."), picture)) is None


CALL = {"type": "function_call", "call_id": "c", "name": "tool", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "result"}


def seen_turn(*items: Item) -> Turn:
    return turn_of(items[:1], items[1:])


def test_texts_of_user_and_assistant_in_order() -> None:
    parts = [
        {"type": "input_text", "text": "with "},
        {"type": "input_image"},
        {"type": "input_text", "text": "image"},
    ]
    asked = Item.of({"role": "user", "content": parts})
    refused = Item.of({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})
    assert seen_texts(seen_turn(asked, message("assistant", "Yes."), refused), ()) == [
        "with image",
        "Yes.",
        "No.",
    ]


def test_nothing_of_tools_reasoning_and_instructions() -> None:
    reasoning = Item.of({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]})
    notes = [message("system", "note"), message("developer", "note"), message("assistant", "")]
    assert seen_texts(seen_turn(*notes, reasoning, Item.of(CALL), Item.of(RESULT)), ()) == []


def test_nothing_that_is_hidden() -> None:
    told = seen_turn(message("user", "one"), message("assistant", "two"), message("assistant", "three"))
    assert seen_texts(told, {1}) == ["one", "three"]
