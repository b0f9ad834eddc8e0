"""Plain text: file names, and lines safe to print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.model.text.plain import LONGEST, content_disposition, file_name, plain


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
