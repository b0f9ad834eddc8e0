"""Stored text cannot do anything to a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.model.printable import plain


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
