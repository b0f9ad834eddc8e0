"""Markdown in a terminal: each kind of block, and what hostile text makes of it."""

from __future__ import annotations

import random
import re

import pytest

from tests.unit.cli.talking.paper import COLOURS, Paper
from turnledger.cli.chat.markdown import LARGEST, MarkdownBlock, blocks_of, parser, splitter

MARKS = [
    "# ", "## ", "> ", "- ", "* ", "1. ", "999. ", "    ", "```\n", "~~~py\n", "`", "**", "_", "~~", "|",
    "\n", "\n\n", "---\n", "|-|-|\n", "[", "](", ")", "<", ">", "![", "\\", "&amp;", "&#27;", "&#x202e;",
    "<http://", "%1b", "<b>", "</b>", "[a]: http://x\n", "\x1b[31m", "\x9b", "\u202e", "\t", "\r", "[red]",
    "[/]", ":smile:",
]  # fmt: skip


def shown(text: str, columns: int = 60) -> list[str]:
    paper = Paper(columns, 50)
    paper.screen.blocks(blocks_of(text))
    return paper.lines


def test_blocks_stand_apart_and_items_together() -> None:
    text = "# One\n\nTwo *and* `three`\nfour\n\n- a\n- b\n  1. c\n\n9. d\n10. e\n\n> f\n\n---\n"
    assert shown(text) == [
        "One",
        "",
        "Two and three",
        "four",
        "",
        " • a",
        " • b",
        "    1. c",
        "",
        " 9. d",
        "10. e",
        "",
        "▌ f",
        "",
        "─" * 40,
    ]


def test_code_stands_between_its_fences_as_it_is() -> None:
    assert shown("```python title\ndef f():\n\n    return '[x]'\n```") == [
        "```python title",
        "def f():",
        "",
        "    return '[x]'",
        "```",
    ]


def test_tables_have_columns() -> None:
    assert [line.split() for line in shown("| a | b |\n|---|--:|\n| 1 | 22 |")] == [
        ["a", "b"],
        ["─" * 5],
        ["1", "22"],
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[name](http://x/y)", "name (http://x/y)"),
        ("<http://x/y>", "http://x/y"),
        ("<me@x.org>", "me@x.org"),
        ("![alt](http://x/y.png)", "[alt] (http://x/y.png)"),
        ("a <b>bold</b> <!-- hidden --> word", "a <b>bold</b> <!-- hidden --> word"),
        ("[a]: http://x/y 'title'", "[a]: http://x/y 'title'"),
        ("[bold]no markup[/bold] :smile:", "[bold]no markup[/bold] :smile:"),
        ("<http://x/%1b]0;t%07>", "http://x/\\x1b]0;t\\x07 (http://x/%1b%5D0;t%07)"),
        ("&#x202e;&#27;", "\\u202e\ufffd"),
    ],
)
def test_links_and_tags_are_told_and_nothing_is_hidden(text: str, line: str) -> None:
    assert shown(text) == [line]


def test_no_escape_but_colours_leaves_for_a_terminal_whatever_is_said() -> None:
    chance = random.Random(7)
    for _ in range(100):
        words = [f"w{number}x" for number in range(12)]
        text = "".join(chance.choice(MARKS) * chance.randint(0, 2) + word for word in words)
        paper = Paper(chance.choice([5, 9, 20, 33, 80]), 40)
        paper.screen.blocks(blocks_of(text))
        told = re.sub(r"\x1b\[\?2026[hl]|\x1b\[K", "", COLOURS.sub("", paper.written))
        assert told.replace("\n", "").isprintable(), text
        letters = re.sub(r"[\s▌•]", "", told)
        assert [word for word in words if word not in letters] == [], text


def test_blocks_are_found_without_looking_into_them() -> None:
    chance = random.Random(8)
    for _ in range(50):
        text = "".join(chance.choice(MARKS) * chance.randint(0, 2) + "word" for _ in range(12))
        found = splitter.parse(text)
        assert [(token.type, token.map) for token in found] == [
            (token.type, token.map) for token in parser.parse(text)
        ], text
        assert not any(token.children for token in found)


def test_what_is_nested_too_deep_or_too_large_is_shown_as_it_is() -> None:
    assert shown("> " * 15 + "deep", 30) == ["> > > > > > > > > > > > > > >", "deep"]
    for mark in ("> ", "- ", "1. "):
        for depth in (8, 9, 10, 18, 19, 20, 21, 1000):
            assert "deep" in " ".join(shown(mark * depth + "deep", 300)), (mark, depth)
    large = "*word* " * (LARGEST // 7 + 1)
    paper = Paper(70, 10)
    paper.screen.blocks([MarkdownBlock(large)])
    assert "*word* *word*" in paper.lines[0]
