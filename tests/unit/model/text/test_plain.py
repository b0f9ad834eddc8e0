"""Whatever a title says, the name of a file is harmless.

One line: the beginning of any text, as it can stand in a list beside other people's.

Stored text cannot do anything to a terminal.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.model.text.plain import LONGEST, content_disposition, file_name, one_line, plain


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
