"""The page of the terminal: its screen, its pipes, and that it names everything."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import typer

from tests.docs.recipe import COMMAND, CONSOLE, ROOT, environment
from tests.terminal.window import Window
from turnledger.cli.main import app
from turnledger.cli.talking.commands import COMMANDS, KEYS

PAGE = (ROOT / "docs" / "terminal.md").read_text()


def test_its_screen_is_what_is_seen(tmp_path: Path) -> None:
    [screen] = re.findall(r"```text\n\$ turnledger chat\n(.*?)```", PAGE, re.DOTALL)
    with Window("chat", home=tmp_path, columns=80, rows=40) as window:
        for typed in re.findall(r"^[0-9]+ › (.*)", screen, re.MULTILINE):
            window.ready()
            window.say(typed)
        window.ready()
        assert window.everything.startswith(screen.rstrip())


def test_its_pipes_print_what_it_says(tmp_path: Path) -> None:
    [block] = CONSOLE.findall(PAGE)
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    commands = COMMAND.findall(block)
    assert len(commands) == 2
    for command, printed in commands:
        told = re.sub(r"\bturnledger ", "python -m turnledger ", command)
        done = subprocess.run(
            ["bash", "-c", told], env={**environment(), **home}, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_every_command_key_and_flag_is_named() -> None:
    assert [each.name for each in COMMANDS if not re.search(rf"`/{each.name}\b", PAGE)] == []
    keys = [key for named, _ in KEYS for key in re.split(", | ", named) if key != "//…"]
    assert [key for key in keys if key not in PAGE] == []
    command = typer.main.get_command(app).commands["chat"]  # type: ignore[attr-defined]
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
    assert [flag for flag in flags if flag not in PAGE] == []
