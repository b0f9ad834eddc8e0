"""Slash commands: parsing of a line, and the effect of each command on a chat of two turns."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.cli.chat.memory_screen import MemoryScreen
from turnledger.api.chats import ChatInfo
from turnledger.cli.chat.backend import question_of
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.session import Session, line_for, message_in
from turnledger.cli.chat.slash_commands import COMMANDS, Commands, command_in
from turnledger.cli.chat.store import StoreChatBackend
from turnledger.errors import InvalidInput, ServerUnavailable, TurnledgerError


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
def test_slash_line_is_read_as_a_command(typed: str, name: str, rest: str) -> None:
    given = command_in(typed)
    assert given is not None
    assert (given.name, given.rest) == (name, rest)


@pytest.mark.parametrize("typed", ["Hello", "//help", "/usr/bin/env is what?", "a /help", "\\/help"])
def test_line_without_a_command_is_read_as_a_message(typed: str) -> None:
    assert command_in(typed) is None


@pytest.mark.parametrize("text", ["Hello", "/help", "//help", "/usr/bin/env is what?"])
def test_any_message_can_be_typed_by_escaping_the_slash(text: str) -> None:
    typed = line_for(text)
    assert command_in(typed) is None
    assert message_in(typed) == text


def test_misspelt_command_suggests_the_nearest() -> None:
    for typed, nearest in (("/renam x", "rename"), ("/xyzzy", None)):
        given = command_in(typed)
        assert given is not None
        assert given.nearest == nearest


def test_every_command_has_a_handler_and_a_unique_name() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    assert [c.name for c in COMMANDS if c.name != "quit" and not hasattr(Commands, f"_{c.name}")] == []


class Person:
    """Answers the prompts of the commands."""

    def __init__(self) -> None:
        self.edits: list[tuple[str, str]] = []
        self.writes: str | None = None
        self.confirms = False
        self.picks: ChatInfo | None = None

    async def pick(self, words: str) -> ChatInfo | None:
        return self.picks

    async def edit(self, label: str, text: str) -> str | None:
        self.edits.append((label, text))
        return self.writes

    async def confirm(self, question: str) -> bool:
        return self.confirms


class Terminal:
    """A user, the screen in front of them, and their session."""

    def __init__(self, backend: StoreChatBackend) -> None:
        self.backend = backend
        self.paper = MemoryScreen(80, 60)
        self.session = Session(backend, self.paper.screen, ["small", "large"], Interrupts())
        self.person = Person()
        self._commands = Commands(self.session, self.person)

    async def do(self, typed: str) -> list[str]:
        """Do what is typed; the lines that it adds to the screen, without empty ones."""
        before = len(self.paper.lines)
        given = command_in(typed)
        assert given is not None
        await self._commands.run(given)
        return [line for line in self.paper.lines[before:] if line]

    async def question(self) -> list[str]:
        """The questions of the chat, as displayed."""
        return list(map(question_of, (await self.session.handle.read()).turns))


@pytest.fixture
async def terminal(backend: StoreChatBackend) -> Terminal:
    terminal = Terminal(backend)
    await terminal.session.send("One")
    await terminal.session.send("Two")
    return terminal


async def test_help_lists_every_command(terminal: Terminal) -> None:
    output = "\n".join(await terminal.do("/help"))
    assert [command.name for command in COMMANDS if f"/{command.name}" not in output] == []


async def test_edit_continues_from_the_turn_and_keeps_both_versions(terminal: Terminal) -> None:
    terminal.person.writes = "One and a half"
    assert (await terminal.do("/edit 1"))[-1] == "Version 2 of 2; /prev shows the previous one."
    assert terminal.person.edits == [("1 edit › ", "One")]
    assert await terminal.question() == ["One and a half"]
    assert await terminal.do("/versions") == [
        '  1  One → You said "One". I remember nothing before that.',
        '› 2  One and a half → You said "One and a half". I remember nothing before tha…',
        "/prev and /next move between them.",
    ]
    assert (await terminal.do("/prev"))[0] == "Turn 1, version 1 of 2:"
    assert await terminal.question() == ["One", "Two"]
    await terminal.do("/next 1")
    assert await terminal.question() == ["One and a half"]
    assert (await terminal.do("/branches"))[0].startswith("› 1  1 turn: ")
    await terminal.do("/switch 2")
    assert await terminal.question() == ["One", "Two"]


async def test_edit_that_is_cancelled_or_fails_changes_no_turn(terminal: Terminal) -> None:
    assert await terminal.do("/edit") == ["Nothing changed."]
    terminal.person.writes = "/fail"
    assert (await terminal.do("/edit"))[-1] == "Nothing changed. /edit restores your text."
    terminal.person.writes = None
    await terminal.do("/edit")
    assert terminal.person.edits == [("2 edit › ", "Two"), ("2 edit › ", "Two"), ("2 edit › ", "/fail")]
    assert await terminal.question() == ["One", "Two"]


async def test_branch_numbers_are_those_of_the_current_chat(terminal: Terminal) -> None:
    await terminal.do("/branches")
    await terminal.do("/new")
    await terminal.session.send("Another")
    await terminal.do("/again")
    await terminal.do("/switch 2")
    assert await terminal.question() == ["Another"]


async def test_undo_and_fork_change_the_current_chat(terminal: Terminal) -> None:
    first = terminal.session.handle.id
    await terminal.do("/fork 1")
    assert await terminal.question() == ["One"]
    assert terminal.session.chat is not None
    assert terminal.session.chat.title == "One (fork)"
    await terminal.do(f"/open {first}")
    await terminal.do("/undo")
    assert (await terminal.question(), terminal.session.unsent) == (["One"], "Two")
    assert terminal.session.label == "2 › "


async def test_chats_are_listed_and_opened_by_number_or_from_the_picker(terminal: Terminal) -> None:
    first = terminal.session.handle.id
    await terminal.do("/new")
    await terminal.session.send("Something else")
    output = await terminal.do("/list")
    assert [line.split()[:2] for line in output[:2]] == [["1", "Something"], ["2", "One"]]
    assert (await terminal.do("/list two"))[1].strip() == "Two"
    await terminal.do("/open 1")
    assert terminal.session.handle.id == first
    (terminal.person.picks,) = await terminal.backend.chats("else")
    await terminal.do("/open")
    assert await terminal.question() == ["Something else"]
    assert await terminal.do("/list nowhere") == ["No chats found."]


async def test_open_without_a_rewritable_screen_prints_a_list(
    terminal: Terminal,
) -> None:
    terminal.session.screen.can_rewrite = False
    assert (await terminal.do("/open"))[-1] == "/open N continues one."


async def test_info_shows_the_chat_and_a_turn(terminal: Terminal) -> None:
    output = await terminal.do("/info")
    assert output[0] == "One"
    assert output[1].startswith(f"{terminal.session.handle.id}, 2 turns, ")
    assert output[2].startswith("Turn 2: small, ")
    assert (await terminal.do("/info 1"))[2].startswith("Turn 1: small, ")


async def test_rename_pin_model_and_delete_change_the_chat(terminal: Terminal) -> None:
    await terminal.do("/rename The order of May")
    await terminal.do("/pin")
    assert terminal.session.chat is not None
    assert (terminal.session.chat.title, terminal.session.chat.pinned) == ("The order of May", True)
    assert await terminal.do("/pin") == ["Unpinned."]
    assert await terminal.do("/model large") == ["  small", "› large"]
    assert (terminal.session.model, terminal.session.is_model_chosen) == ("large", True)
    assert await terminal.do("/delete") == ["Nothing was deleted."]
    terminal.person.confirms = True
    await terminal.do("/delete")
    assert await terminal.backend.chats() == []
    assert terminal.session.handle.id is None


async def test_export_writes_a_new_file_and_never_overwrites(terminal: Terminal, tmp_path: Path) -> None:
    for name, beginning in (("chat.md", "# One"), ("chat.jsonl", '{"type":"chat"')):
        await terminal.do(f"/export {tmp_path / name}")
        assert (tmp_path / name).read_text().startswith(beginning)
    with pytest.raises(InvalidInput, match="already exists"):
        await terminal.do(f"/export {tmp_path / 'chat.md'}")


async def test_export_that_fails_leaves_no_file(terminal: Terminal, tmp_path: Path) -> None:
    async def export(*, is_markdown: bool) -> AsyncIterator[bytes]:
        yield b"half of it"
        raise ServerUnavailable("It is not there.")

    terminal.session.handle.export = export  # type: ignore[method-assign]
    with pytest.raises(ServerUnavailable):
        await terminal.do(f"/export {tmp_path / 'chat.md'}")
    assert os.listdir(tmp_path) == []
    with pytest.raises(InvalidInput, match="cannot be written"):
        await terminal.do(f"/export {tmp_path / 'nowhere' / 'chat.md'}")


@pytest.mark.parametrize(
    "typed",
    [
        "/nonsense",
        "/edit 9",
        "/edit x",
        "/switch",
        "/switch 9",
        "/open 1",
        "/rename",
        "/export",
        "/model x",
        "/prev",
    ],
)
async def test_invalid_command_raises_invalid_input(terminal: Terminal, typed: str) -> None:
    with pytest.raises(InvalidInput):
        await terminal.do(typed)


@pytest.mark.parametrize("typed", ["/again", "/edit", "/undo", "/fork", "/history", "/rename x", "/export x"])
async def test_command_on_an_empty_chat_reports_that_it_has_no_turns(terminal: Terminal, typed: str) -> None:
    await terminal.do("/new")
    with pytest.raises(TurnledgerError, match="This chat has no turns yet"):
        await terminal.do(typed)
