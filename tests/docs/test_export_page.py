"""The commands of the page on exports run as they stand there."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

from turnledger import Ledger

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
[COMMANDS] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


async def talk(url: str) -> str:
    async with await Ledger.open(url) as ledger:
        chat = await ledger.conversation(conversation_key="lunch")
        async with chat.turn("Hello") as turn:
            turn.emit("Hi")
        return chat.id


def test_the_commands_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chats.db'}"
    chat = asyncio.run(talk(url))
    printed = [_run(line, url, tmp_path) for line in COMMANDS.splitlines()]
    assert printed[0] == ""
    assert "## User" in printed[1]
    assert printed[2] == f"line 1: unchanged {chat} (1 turns) It is here already.\n"


def _run(line: str, url: str, folder: Path) -> str:
    name, *words = shlex.split(line)
    assert name == "turnledger"
    command = [sys.executable, "-m", "turnledger", *words, "--store", url]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
