"""One line: the beginning of any text, as it can stand in a list beside other people's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.model.one_line import one_line


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
