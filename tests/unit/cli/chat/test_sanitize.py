"""What is shown of hostile text."""

from __future__ import annotations

import sys

import pytest

from turnledger.cli.chat.sanitize import harmless, on_one_line, uncontrolled


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\r\nlines\n", "two\nlines\n"),
        ("a\tb", "a    b"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb", r"a\rb"),
        ("no\u00a0break\u202fspace", "no break space"),
        ("\U0001f469\u200d\U0001f467", "\U0001f469\U0001f467"),
        ("soft\u00adhyphen\ufeff", "softhyphen"),
        ("\u202eevil", r"\u202eevil"),
        ("line\u2028separator", r"line\u2028separator"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_commands_is_written_out(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_nothing_is_left_that_is_not_printable() -> None:
    everything = "".join(map(chr, (*range(0x20000), *range(0xE0000, 0xE1000), 0xFFFFF, sys.maxunicode)))
    assert harmless(everything).replace("\n", "").isprintable()


def test_harmless_text_stays_as_it_is() -> None:
    text = 'Übermäßig: "日本語", 😀 and\nsome lines\n'
    assert harmless(text) == text
    assert harmless(harmless("\x1b\u202e")) == harmless("\x1b\u202e")


def test_a_name_has_one_line() -> None:
    assert on_one_line(" a\n b\tc\x1b ") == r"a b c\x1b"


def test_programs_get_the_text_but_nothing_that_controls() -> None:
    assert uncontrolled("a\tb\r\nc\u00a0\u202e\n") == "a\tb\nc\u00a0\u202e\n"
    assert uncontrolled("\x1b]0;x\x07\x9b\x7f\r") == r"\x1b]0;x\x07\x9b\x7f\r"
