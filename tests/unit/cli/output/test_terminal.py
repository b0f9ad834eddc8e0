"""What people see in windows of all widths, on a real pseudo-terminal; and what a pipe gets instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.commands.test_chats import asked, say
from tests.unit.cli.pseudo_terminal import Ran, Shown, shown
from turnledger import Ledger

LONG = "How is the weather in Rome, and will it rain for the whole week?"
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m [bold red]hi[/] :smile: 漢字"
COLOURS = re.compile(rb"\x1b\[(?:[0-9]+;)*[349][0-7]m")
LIST, SEARCH, SHOW = ("chats", "list"), ("chats", "search", "rains"), ("chats", "show", "weather")
SHOW_HOSTILE, WRONG, TOKENS = ("chats", "show", "hostile"), ("chats", "show", "\x1b[2J"), ("tokens", "list")
JSON = (*SHOW_HOSTILE, "--json")
EXPORT, MARKDOWN = ("chats", "export", "hostile"), ("chats", "export", "hostile", "--format", "markdown")
COMMANDS = (LIST, SEARCH, SHOW, SHOW_HOSTILE, TOKENS, WRONG, JSON, EXPORT, MARKDOWN)
COLOURED = (LIST, SEARCH, SHOW)
PIPED = [((40, ()), COMMANDS)]
WINDOWS = [
    *(((columns, ()), COMMANDS) for columns in (20, 40, 120)),
    *(((80, (setting,)), COLOURED) for setting in (("TERM", "xterm"), ("TERM", "dumb"), ("NO_COLOR", "1"))),
    ((40, (("TERM", "dumb"),)), (LIST,)),
]
"""Width and environment of each window, and what is run there."""

Look = Callable[..., Shown]


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


@pytest.fixture(scope="module")
def look(url: str) -> Look:
    """What a command shows in a window so wide. All run in one process, when the first is asked for; those
    that write into a pipe in another."""
    seen: dict[tuple[object, bool], Shown] = {}

    def look(command: tuple[str, ...], columns: int, *, pipes: bool = False, **env: str) -> Shown:
        if not any(was_piped is pipes for _, was_piped in seen):
            wanted = [(each, *window) for window, every in (PIPED if pipes else WINDOWS) for each in every]
            ran = [Ran([*each, "--store", url], width, dict(env)) for each, width, env in wanted]
            seen.update(zip(((each, pipes) for each in wanted), shown(ran, pipes=pipes), strict=True))
        return seen[(command, columns, tuple(env.items())), pipes]

    return look


def id_of(url: str, conversation_key: str) -> str:
    async def find(ledger: Ledger) -> str:
        return (await ledger.conversation(conversation_key=conversation_key)).id

    return asked(url, find)


@pytest.mark.parametrize("columns", [20, 40, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_sent_to_a_terminal_but_lines_and_how_they_stand_out(
    look: Look, command: tuple[str, ...], columns: int
) -> None:
    screen = look(command, columns)
    left = re.sub(rb"\x1b\[[0-9;]*m|\r\n", b"", screen.sent).decode()
    assert left
    assert left.isprintable()
    assert screen.code == (2 if command == WRONG else 0)


def test_a_wide_window_has_a_table(look: Look, url: str) -> None:
    screen = look(LIST, 120)
    head, hostile, weather = screen.lines
    assert head.split() == ["LAST", "USED", "TURNS", "ID", "TITLE"]
    assert head.index("TITLE") == weather.index("[pinned] How is the weather") == hostile.index("[2J")
    assert id_of(url, "weather") in weather
    assert "[bold red]hi[/] :smile: 漢字" in hostile
    assert weather.endswith("…")
    assert b"\x1b[1mLAST USED\x1b[0m" in screen.sent


def test_a_window_of_eighty_makes_room_for_titles(look: Look) -> None:
    head, _, weather = look(LIST, 80, TERM="xterm").lines
    assert head.split() == ["LAST", "USED", "ID", "TITLE"]
    assert "[pinned] How is the" in weather


def test_a_narrow_window_has_lines_for_each_and_whole_ids(look: Look, url: str) -> None:
    lines = look(LIST, 40).lines
    at = lines.index(f"  {id_of(url, 'weather')}")
    assert " ".join(lines[at - 2 : at]).startswith("[pinned] How is the weather in Rome,")
    assert lines[at + 1].endswith(", 1 turn")


@pytest.mark.parametrize("columns", [40, 120])
def test_a_chat_is_read_in_any_window(look: Look, url: str, columns: int) -> None:
    lines = look(SHOW, columns).lines
    text = " ".join(" ".join(lines).split())
    assert text.startswith(LONG[:30])
    assert id_of(url, "weather") in text
    assert f"user: {LONG}" in text
    assert "It rains in Rome. It rains in Rome." in text
    answer = lines[next(at for at, line in enumerate(lines) if "assistant:" in line) :]
    assert all(line.startswith("  ") for line in answer)


@pytest.mark.parametrize("columns", [40, 120])
def test_what_was_said_is_written_out(look: Look, columns: int) -> None:
    lines = look(SHOW_HOSTILE, columns).lines
    assert r"\x1b[2J\x1b]0;owned\x07\x9b31m" in "".join(line.strip() for line in lines)


def test_what_was_sought_stands_out(look: Look, url: str) -> None:
    screen = look(SEARCH, 40)
    assert screen.lines[0] == id_of(url, "weather")
    assert COLOURS.search(screen.sent)


def test_who_wants_no_colours_gets_none(look: Look) -> None:
    for command in COLOURED:
        assert not COLOURS.search(look(command, 80, NO_COLOR="1").sent)
        assert b"\x1b" not in look(command, 80, TERM="dumb").sent
    assert b"\x1b[1mrains" in look(SEARCH, 80, NO_COLOR="1").sent


def test_a_terminal_that_can_do_nothing_else_has_a_width(look: Look) -> None:
    assert look(LIST, 40, TERM="dumb").lines == look(LIST, 40).lines


@pytest.mark.parametrize("columns", [40, 120])
def test_tokens_fit(look: Look, columns: int) -> None:
    text = " ".join(" ".join(look(TOKENS, columns).lines).split())
    assert re.search(r"\btok_[0-9a-f]{32}\b", text)
    words = {word.strip("',") for word in text.split()}
    assert {"ann", "phone", "chats:read", "chats:write", "turns:run", "never"} <= words


def test_a_pipe_gets_whole_lines_however_narrow_the_window_is(look: Look) -> None:
    listed = look(LIST, 40, pipes=True)
    head, _, weather = listed.piped.splitlines()
    assert (listed.lines, listed.code) == ([], 0)
    assert head.split() == ["LAST", "USED", "TURNS", "ID", "TITLE"]
    assert weather.endswith("[pinned] How is the weather in Rome, and will it rain for the whole…")
    assert f"  user: {LONG}\n" in look(SHOW, 40, pipes=True).piped
    for command in (LIST, SEARCH, SHOW, SHOW_HOSTILE, TOKENS, JSON):
        assert look(command, 40, pipes=True).piped.replace("\n", "").isprintable()
    assert "\x9b" in look(EXPORT, 40, pipes=True).piped  # a file is as it was said


def test_json_is_the_same_json(look: Look) -> None:
    told = json.loads(look(JSON, 120).sent)
    assert told["turns"][0]["input"][0]["content"][0]["text"] == HOSTILE


def test_a_mistake_is_one_line_and_no_more(look: Look) -> None:
    [line] = look(WRONG, 120).lines
    assert line.startswith("conversation_not_found: ")


def test_long_work_has_a_bar_that_is_gone_when_it_is_done(tmp_path: Path) -> None:
    url, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("mine", "yours"))
    ids = [say(url, key, ("Hello", "Hi.")) for key in ("one", "two")]
    file = str(tmp_path / "chats.jsonl")
    works = {
        "Exporting": ["chats", "export", "--all", "--output", file, "--store", url],
        "Importing": ["chats", "import", file, "--store", other],
        "Changing": ["chats", "pin", *ids, "--store", url],
        "Deleting": ["chats", "delete", *ids, "--store", url],
        "Restoring": ["chats", "restore", *ids, "--store", url],
        "Checking": ["check", "--store", url],
    }
    ran = shown([Ran(each, 80, {}) for each in works.values()], patience=0)
    for doing, screen in zip(works, ran, strict=True):
        assert screen.code == 0, screen.lines
        assert f"{doing} " in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.sent.decode())
        assert not [line for line in screen.lines if line.startswith(doing)], screen.lines
