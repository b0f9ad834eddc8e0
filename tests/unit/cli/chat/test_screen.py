"""What is written to a terminal: what stays, and what changes until it does."""

from __future__ import annotations

import pyte
from rich.text import Text

from tests.unit.cli.talking.paper import Paper
from turnledger.cli.chat.markdown import MarkdownBlock
from turnledger.cli.chat.screen import is_light


def test_what_is_said_stays_and_empty_lines_do_not_add_up() -> None:
    paper = Paper()
    paper.screen.blank()
    paper.screen.say(Text("[bold]one[/bold]\x1b[31m"))
    paper.screen.blank()
    paper.screen.blank()
    paper.screen.say(Text("two"))
    assert paper.lines == ["[bold]one[/bold]\\x1b[31m", "", "two"]


def test_what_changes_is_written_over_and_gone_in_the_end() -> None:
    paper = Paper()
    paper.screen.say(Text("before"))
    paper.screen.blocks((), MarkdownBlock("A *li"), "status")
    assert paper.lines == ["before", "", "A *li", "status"]
    paper.screen.blocks((), MarkdownBlock("A *little*"), "")
    assert paper.lines == ["before", "", "A little"]
    paper.screen.blocks([MarkdownBlock("A *little* more")])
    paper.screen.settle()
    assert paper.lines == ["before", "", "A little more"]


def test_a_line_that_the_terminal_shows_wider_than_was_thought_takes_one_row() -> None:
    paper = Paper(10, 12)
    paper.screen.say(Text("before"))
    paper.screen.blocks((), MarkdownBlock("123456789\u2764"), "status")  # nine columns, and one or two
    wider = paper.written.replace("\u2764", "\u65e5")
    assert (
        paper.written.index("\x1b[?7l") < paper.written.index("123456789") < paper.written.index("\x1b[?7h")
    )
    window = pyte.Screen(10, 12)
    pyte.Stream(window).feed(wider.replace("\n", "\r\n"))
    assert [line.rstrip() for line in window.display][3] == "status"


def test_of_a_block_higher_than_the_window_the_end_is_shown() -> None:
    paper = Paper(20, 8)
    block = MarkdownBlock("\n".join(f"line {number}" for number in range(30)))
    paper.screen.blocks((), block, "status")
    assert paper.lines == [*(f"line {number}" for number in range(25, 30)), "status"]
    paper.screen.blocks([block])
    assert paper.lines == [f"line {number}" for number in range(30)]


def test_lines_that_a_narrower_window_has_broken_are_not_written_over() -> None:
    paper = Paper(40, 12)
    paper.screen.say(Text("before"))
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


def test_code_is_coloured_for_the_window_that_there_is() -> None:
    assert [is_light(told) for told in ("0;15", "15;0", "0;default;15", None, "")] == [
        True,
        False,
        True,
        False,
        False,
    ]
