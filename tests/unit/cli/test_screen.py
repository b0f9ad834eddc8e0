"""What people see in windows of all widths, on a real pseudo-terminal; and what a pipe gets instead."""

from __future__ import annotations

import json
import re

import pytest

from tests.unit.cli.pseudo_terminal import Shown, shown
from tests.unit.cli.test_chats import asked, say
from turnledger import Ledger

LONG = "How is the weather in Rome, and will it rain for the whole week?"
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m [bold red]hi[/] :smile: 漢字"
COLOURS = re.compile(rb"\x1b\[(?:[0-9]+;)*[349][0-7]m")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with two chats, one of which is hostile, and a token."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/mine.db"
    say(url, "weather", (LONG, "It rains in Rome. " * 10))
    say(url, "hostile", (HOSTILE, HOSTILE + "\nand more"))

    async def mark(ledger: Ledger) -> None:
        scopes = ["chats:read", "chats:write", "turns:run"]
        await (await ledger.conversation(conversation_key="weather")).update(pinned=True)
        await ledger.tokens.create(scopes=scopes, owner="ann", name="phone")

    asked(url, mark)
    return url


def id_of(url: str, conversation_key: str) -> str:
    async def look(ledger: Ledger) -> str:
        return (await ledger.conversation(conversation_key=conversation_key)).id

    return asked(url, look)


def is_tame(screen: Shown, columns: int) -> bool:
    """Whether nothing was sent to the terminal but lines and how they stand out."""
    left = re.sub(rb"\x1b\[[0-9;]*m|\r\n", b"", screen.sent).decode()
    return left.isprintable() and all(len(line) <= columns for line in screen.lines)


def test_a_wide_window_has_a_table(url: str) -> None:
    screen = shown("chats", "list", "--store", url, columns=120)
    head, hostile, weather = screen.lines
    assert head.split() == ["LAST", "USED", "TURNS", "ID", "TITLE"]
    assert head.index("TITLE") == weather.index("[pinned] How is the weather") == hostile.index("[2J")
    assert id_of(url, "weather") in weather
    assert "[bold red]hi[/] :smile: 漢字" in hostile
    assert weather.endswith("…")
    assert b"\x1b[1mLAST USED\x1b[0m" in screen.sent
    assert (screen.code, is_tame(screen, 120)) == (0, True)


def test_a_window_of_eighty_makes_room_for_titles(url: str) -> None:
    screen = shown("chats", "list", "--store", url, columns=80)
    assert screen.lines[0].split() == ["LAST", "USED", "ID", "TITLE"]
    assert "[pinned] How is the" in screen.lines[2]
    assert is_tame(screen, 80)


def test_a_narrow_window_has_lines_for_each_and_whole_ids(url: str) -> None:
    screen = shown("chats", "list", "--store", url, columns=40)
    at = screen.lines.index(f"  {id_of(url, 'weather')}")
    assert " ".join(screen.lines[at - 2 : at]).startswith("[pinned] How is the weather in Rome,")
    assert screen.lines[at + 1].endswith(", 1 turn")
    assert is_tame(screen, 40)


@pytest.mark.parametrize("columns", [40, 120])
def test_a_chat_is_read_in_any_window(url: str, columns: int) -> None:
    screen = shown("chats", "show", "weather", "--store", url, columns=columns)
    text = " ".join(" ".join(screen.lines).split())
    assert text.startswith(LONG[:30])
    assert id_of(url, "weather") in text
    assert "user: " + LONG in text
    assert "It rains in Rome. It rains in Rome." in text
    answer = screen.lines[screen.lines.index(next(line for line in screen.lines if "assistant:" in line)) :]
    assert all(line.startswith("  ") for line in answer)
    assert is_tame(screen, columns)


@pytest.mark.parametrize("columns", [40, 120])
def test_what_was_said_is_read_and_does_nothing(url: str, columns: int) -> None:
    screen = shown("chats", "show", "hostile", "--store", url, columns=columns)
    assert is_tame(screen, columns)
    assert r"\x1b[2J\x1b]0;owned\x07\x9b31m" in "".join(line.strip() for line in screen.lines)


def test_what_was_sought_stands_out(url: str) -> None:
    screen = shown("chats", "search", "rains", "--store", url, columns=40)
    assert screen.lines[0] == id_of(url, "weather")
    assert COLOURS.search(screen.sent)
    assert is_tame(screen, 40)


def test_who_wants_no_colours_gets_none(url: str) -> None:
    screen = shown("chats", "search", "rains", "--store", url, columns=80, env={"NO_COLOR": "1"})
    assert not COLOURS.search(screen.sent)
    assert b"\x1b[1mrains" in screen.sent
    plain = shown("chats", "search", "rains", "--store", url, columns=80, env={"TERM": "dumb"})
    assert b"\x1b" not in plain.sent


@pytest.mark.parametrize("columns", [40, 120])
def test_tokens_fit(url: str, columns: int) -> None:
    screen = shown("tokens", "list", "--store", url, columns=columns)
    text = " ".join(screen.lines)
    assert re.search(r"\btok_[0-9a-z]+\b", text)
    assert {"ann", "phone"} <= {word.strip("',") for word in text.split()}
    assert "chats:read, chats:write," in " ".join(text.split()) or columns == 120
    assert is_tame(screen, columns)


def test_a_pipe_gets_whole_lines_however_narrow_the_window_is(url: str) -> None:
    piped = shown("chats", "list", "--store", url, columns=40, pipes=True)
    assert (piped.lines, piped.code) == ([], 0)
    head, _, weather = piped.piped.splitlines()
    assert head.split() == ["LAST", "USED", "TURNS", "ID", "TITLE"]
    assert weather.endswith("[pinned] How is the weather in Rome, and will it rain for the whole…")
    assert "\x1b" not in piped.piped
    piped = shown("chats", "show", "weather", "--store", url, columns=40, pipes=True)
    assert f"  user: {LONG}\n" in piped.piped


def test_json_and_exports_on_a_terminal_are_tame(url: str) -> None:
    for command in (("export", "hostile"), ("export", "hostile", "--format", "markdown")):
        screen = shown("chats", *command, "--store", url, columns=120)
        assert (screen.code, is_tame(screen, 120)) == (0, True)
    told = shown("chats", "show", "hostile", "--json", "--store", url, columns=120)
    assert is_tame(told, 120)
    assert json.loads(told.sent)["turns"][0]["input"][0]["content"][0]["text"] == HOSTILE


def test_a_mistake_is_one_line_on_a_terminal_too(url: str) -> None:
    screen = shown("chats", "show", "\x1b[2J", "--store", url, columns=120)
    assert (screen.code, len(screen.lines)) == (2, 1)
    assert screen.lines[0].startswith("conversation_not_found: ")
    assert is_tame(screen, 120)
