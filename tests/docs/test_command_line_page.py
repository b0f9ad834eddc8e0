"""The page of the command line: its commands, run in the order in which they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import typer

from turnledger import Ledger
from turnledger.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text()
COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)
CONSOLE = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
SAID = {
    "my-order": [("Where is my order?", "On its way."), ("Since when?", "Since yesterday.")],
    "weather": [("How is the weather in Rome?", "It rains in Rome.")],
}


async def talk(store: Path) -> None:
    async with await Ledger.open(f"sqlite:///{store}") as ledger:
        for conversation_key, said in SAID.items():
            chat = await ledger.conversation(conversation_key=conversation_key)
            for question, answer in said:
                async with chat.turn(question) as turn:
                    turn.emit(answer)


def test_its_commands_print_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "turnledger"
    folder.mkdir()
    asyncio.run(talk(folder / "chats.db"))
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    script = tmp_path / "turnledger.sh"
    script.write_text(f'turnledger() {{ "{sys.executable}" -m turnledger "$@"; }}\n')
    commands = COMMAND.findall(CONSOLE)
    assert len(commands) == 7
    for command, printed in commands:
        done = subprocess.run(
            ["bash", "-c", f". {script}\n{command}"],
            env={**os.environ, **home, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        expected = r"[^\n]*".join(map(re.escape, printed.strip().split("…")))
        assert re.fullmatch(expected, done.stdout.strip()), done.stdout


def test_every_command_and_flag_is_named() -> None:
    group = typer.main.get_command(app).commands["chats"]  # type: ignore[attr-defined]
    named = ("list", "search", "show", "rename", "pin", "archive", "delete", "restore")
    for name in named:
        assert f"turnledger chats {name}" in PAGE
        flags = {flag for parameter in group.commands[name].params for flag in parameter.opts if "--" in flag}
        assert [flag for flag in flags if f"`{flag}`" not in PAGE] == []
