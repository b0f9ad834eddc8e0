"""What is printed can be printed, and JSON stays the same JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.cli.output.streams import aligned, json_of, printable_json
from turnledger.model.item import Item

HOSTILE = "\x1b[2J \x9b31m \u202e \u2028 \x7f \U000e0041 漢字 é"


def test_json_says_the_same_in_letters_that_can_be_printed() -> None:
    text = json_of({"said": HOSTILE})
    assert text.isprintable()
    assert "漢字 é" in text
    assert json.loads(text) == {"said": HOSTILE}


@pytest.mark.parametrize(
    "raw", ['{"type":"message",\n\t"role":"user",\r\n"content":"a\\nb\x7f\x9b"}', '{"type" : "x"}']
)
def test_an_item_is_told_as_it_was_given_on_one_line(raw: str) -> None:
    text = json_of([Item(raw.encode())])
    assert text.isprintable()
    assert json.loads(text) == [json.loads(raw)]


@given(st.dictionaries(st.text(), st.text()))
def test_whatever_json_says_it_says_in_print(value: dict[str, str]) -> None:
    for raw in (json.dumps(value, ensure_ascii=False), json.dumps(value, ensure_ascii=False, indent=1)):
        text = printable_json(raw)
        assert text.isprintable()
        assert json.loads(text) == value


def test_what_can_be_printed_is_left_alone() -> None:
    assert printable_json('{"a":"漢字"}') == '{"a":"漢字"}'


def test_rows_are_whole_and_below_each_other() -> None:
    assert aligned([("A", "BB"), ("long", "\x1b"), ("", "x")]) == ["A     BB", "long  \\x1b", "      x"]
    assert aligned([("A", "B"), ("漢字", "x"), ("é", "y")]) == ["A     B", "漢字  x", "é     y"]
