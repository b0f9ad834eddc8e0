"""The page of the terminal: its screen, its pipes, and that it names everything."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from tests.docs.recipe import CONSOLE, ROOT
from tests.terminal.window import Window
from turnledger.cli.chat.commands import COMMANDS, KEYS
from turnledger.cli.main import app

PAGE = (ROOT / "docs" / "terminal.md").read_text()


def test_its_screen_is_what_is_seen(tmp_path: Path) -> None:
    [screen] = re.findall(r"```text\n\$ turnledger chat\n(.*?)```", PAGE, re.DOTALL)
    where = {"XDG_DATA_HOME": ""}  # as with most people
    with Window("chat", home=tmp_path, columns=80, rows=40, more=where) as window:
        for typed in re.findall(r"^[0-9]+ › (.*)", screen, re.MULTILINE):
            window.ready()
            window.say(typed)
        window.ready()
        assert window.everything.startswith(screen.rstrip())


def test_its_pipes_are_those_of_the_readme() -> None:
    """Which are run."""
    [block] = CONSOLE.findall(PAGE)
    assert block in (ROOT / "README.md").read_text()


def test_every_command_key_and_flag_is_named() -> None:
    assert [each.name for each in COMMANDS if not re.search(rf"`/{each.name}\b", PAGE)] == []
    keys = [key for named, _ in KEYS for key in re.split(", | ", named) if key != "//…"]
    assert [key for key in keys if key not in PAGE] == []
    command = typer.main.get_command(app).commands["chat"]  # type: ignore[attr-defined]
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
    assert [flag for flag in flags if flag not in PAGE] == []
