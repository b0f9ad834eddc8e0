"""The screen: sanitized text, Markdown, and the changing block below the printed lines."""

from __future__ import annotations

import random
import re
import sys

import pyte
import pytest
from rich.text import Text

from tests.unit.cli.chat.memory_screen import COLOURS, MemoryScreen
from turnledger.cli.chat.markdown import MAX_BLOCK, MarkdownBlock, blocks_of, parser, splitter
from turnledger.cli.chat.screen import is_light
from turnledger.cli.output.sanitize import escape_controls, sanitize, sanitize_line


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
def test_harmless_escapes_control_sequences(text: str, shown: str) -> None:
    assert sanitize(text) == shown


def test_harmless_output_is_always_printable() -> None:
    everything = "".join(map(chr, (*range(0x20000), *range(0xE0000, 0xE1000), 0xFFFFF, sys.maxunicode)))
    assert sanitize(everything).replace("\n", "").isprintable()


def test_harmless_leaves_harmless_text_unchanged() -> None:
    text = 'Übermäßig: "日本語", 😀 and\nsome lines\n'
    assert sanitize(text) == text
    assert sanitize(sanitize("\x1b\u202e")) == sanitize("\x1b\u202e")


def test_title_is_reduced_to_one_line() -> None:
    assert sanitize_line(" a\n b\tc\x1b ") == r"a b c\x1b"


def test_piped_text_keeps_everything_but_control_characters() -> None:
    assert escape_controls("a\tb\r\nc\u00a0\u202e\n") == "a\tb\nc\u00a0\u202e\n"
    assert escape_controls("\x1b]0;x\x07\x9b\x7f\r") == r"\x1b]0;x\x07\x9b\x7f\r"


MARKS = [
    "# ", "## ", "> ", "- ", "* ", "1. ", "999. ", "    ", "```\n", "~~~py\n", "`", "**", "_", "~~", "|",
    "\n", "\n\n", "---\n", "|-|-|\n", "[", "](", ")", "<", ">", "![", "\\", "&amp;", "&#27;", "&#x202e;",
    "<http://", "%1b", "<b>", "</b>", "[a]: http://x\n", "\x1b[31m", "\x9b", "\u202e", "\t", "\r", "[red]",
    "[/]", ":smile:",
]  # fmt: skip


def shown(text: str, columns: int = 60) -> list[str]:
    paper = MemoryScreen(columns, 50)
    paper.screen.blocks(blocks_of(text))
    return paper.lines


def test_markdown_blocks_are_separated_and_list_items_are_not() -> None:
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


def test_markdown_code_is_shown_verbatim_between_its_fences() -> None:
    assert shown("```python title\ndef f():\n\n    return '[x]'\n```") == [
        "```python title",
        "def f():",
        "",
        "    return '[x]'",
        "```",
    ]


def test_markdown_tables_are_aligned_in_columns() -> None:
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
def test_markdown_links_and_tags_are_shown_in_full(text: str, line: str) -> None:
    assert shown(text) == [line]


def test_markdown_output_contains_no_escapes_but_colours() -> None:
    chance = random.Random(7)
    for _ in range(100):
        words = [f"w{number}x" for number in range(12)]
        text = "".join(chance.choice(MARKS) * chance.randint(0, 2) + word for word in words)
        paper = MemoryScreen(chance.choice([5, 9, 20, 33, 80]), 40)
        paper.screen.blocks(blocks_of(text))
        output = re.sub(r"\x1b\[\?2026[hl]|\x1b\[K", "", COLOURS.sub("", paper.written))
        assert output.replace("\n", "").isprintable(), text
        letters = re.sub(r"[\s▌•]", "", output)
        assert [word for word in words if word not in letters] == [], text


def test_markdown_splitter_finds_the_blocks_of_the_parser() -> None:
    chance = random.Random(8)
    for _ in range(50):
        text = "".join(chance.choice(MARKS) * chance.randint(0, 2) + "word" for _ in range(12))
        found = splitter.parse(text)
        assert [(token.type, token.map) for token in found] == [
            (token.type, token.map) for token in parser.parse(text)
        ], text
        assert not any(token.children for token in found)


def test_markdown_nested_too_deep_or_too_large_is_shown_verbatim() -> None:
    assert shown("> " * 15 + "deep", 30) == ["> > > > > > > > > > > > > > >", "deep"]
    for mark in ("> ", "- ", "1. "):
        for depth in (8, 9, 10, 18, 19, 20, 21, 1000):
            assert "deep" in " ".join(shown(mark * depth + "deep", 300)), (mark, depth)
    large = "*word* " * (MAX_BLOCK // 7 + 1)
    paper = MemoryScreen(70, 10)
    paper.screen.blocks([MarkdownBlock(large)])
    assert "*word* *word*" in paper.lines[0]


def test_screen_keeps_lines_and_collapses_blank_ones() -> None:
    paper = MemoryScreen()
    paper.screen.blank()
    paper.screen.print(Text("[bold]one[/bold]\x1b[31m"))
    paper.screen.blank()
    paper.screen.blank()
    paper.screen.print(Text("two"))
    assert paper.lines == ["[bold]one[/bold]\\x1b[31m", "", "two"]


def test_screen_overwrites_the_changing_block_and_removes_it() -> None:
    paper = MemoryScreen()
    paper.screen.print(Text("before"))
    paper.screen.blocks((), MarkdownBlock("A *li"), "status")
    assert paper.lines == ["before", "", "A *li", "status"]
    paper.screen.blocks((), MarkdownBlock("A *little*"), "")
    assert paper.lines == ["before", "", "A little"]
    paper.screen.blocks([MarkdownBlock("A *little* more")])
    paper.screen.clear_live()
    assert paper.lines == ["before", "", "A little more"]


def test_screen_line_wider_than_computed_takes_one_row() -> None:
    paper = MemoryScreen(10, 12)
    paper.screen.print(Text("before"))
    paper.screen.blocks((), MarkdownBlock("123456789\u2764"), "status")  # nine columns, and one or two
    wider = paper.written.replace("\u2764", "\u65e5")
    assert (
        paper.written.index("\x1b[?7l") < paper.written.index("123456789") < paper.written.index("\x1b[?7h")
    )
    window = pyte.Screen(10, 12)
    pyte.Stream(window).feed(wider.replace("\n", "\r\n"))
    assert [line.rstrip() for line in window.display][3] == "status"


def test_screen_shows_the_end_of_a_block_taller_than_the_window() -> None:
    paper = MemoryScreen(20, 8)
    block = MarkdownBlock("\n".join(f"line {number}" for number in range(30)))
    paper.screen.blocks((), block, "status")
    assert paper.lines == [*(f"line {number}" for number in range(25, 30)), "status"]
    paper.screen.blocks([block])
    assert paper.lines == [f"line {number}" for number in range(30)]


def test_screen_does_not_overwrite_lines_rewrapped_by_a_narrower_window() -> None:
    paper = MemoryScreen(40, 12)
    paper.screen.print(Text("before"))
    paper.screen.blocks((), MarkdownBlock("words that fill most of this line"), "status")
    paper.console.width = 20
    paper.screen.blocks([MarkdownBlock("words that fill most of this line")])
    assert paper.lines == [
        "before",
        "",
        "words that fill most of this line",
        "",
        "words that fill most",
        "of this line",
    ]


def test_code_theme_follows_the_terminal_background() -> None:
    assert [is_light(value) for value in ("0;15", "15;0", "0;default;15", None, "")] == [
        True,
        False,
        True,
        False,
        False,
    ]
