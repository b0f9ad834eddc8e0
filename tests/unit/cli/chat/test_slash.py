"""What is a command, and what is said."""

from __future__ import annotations

import pytest

from turnledger.cli.chat.commands import COMMANDS, Commands, command_in
from turnledger.cli.chat.session import said_in, typed_for


@pytest.mark.parametrize(
    ("typed", "name", "rest"),
    [
        ("/help", "help", ""),
        (" /edit  3 ", "edit", "3"),
        ("/rename The order\nof May", "rename", "The order\nof May"),
        ("/q", "quit", ""),
        ("/‹", "prev", ""),
        ("/> 2", "next", "2"),
        ("/nonsense", "", ""),
        ("/", "", ""),
    ],
)
def test_a_line_that_begins_with_a_slash_is_a_command(typed: str, name: str, rest: str) -> None:
    given = command_in(typed)
    assert given is not None
    assert (given.name, given.rest) == (name, rest)


@pytest.mark.parametrize("typed", ["Hello", "//help", "/usr/bin/env is what?", "a /help", "\\/help"])
def test_any_other_line_is_said(typed: str) -> None:
    assert command_in(typed) is None


@pytest.mark.parametrize("text", ["Hello", "/help", "//help", "/usr/bin/env is what?"])
def test_whatever_is_to_be_said_can_be_typed(text: str) -> None:
    typed = typed_for(text)
    assert command_in(typed) is None
    assert said_in(typed) == text


def test_a_misspelt_one_is_told_what_comes_near() -> None:
    for typed, nearest in (("/renam x", "rename"), ("/xyzzy", None)):
        given = command_in(typed)
        assert given is not None
        assert given.nearest == nearest


def test_every_command_is_done_by_something_and_no_name_is_taken_twice() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.also)]
    assert len(names) == len(set(names))
    assert [c.name for c in COMMANDS if c.name != "quit" and not hasattr(Commands, f"_{c.name}")] == []
