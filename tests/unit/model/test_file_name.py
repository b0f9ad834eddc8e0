"""Whatever a title says, the name of a file is harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.model.file_name import LONGEST, content_disposition, file_name


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
