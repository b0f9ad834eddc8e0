"""What the README says of the terminal: its commands, in the order in which they stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.docs.recipe import COMMAND, CONSOLE, ROOT, environment

README = (ROOT / "README.md").read_text()


def test_a_pipe_is_one_message_and_the_next_can_go_on(tmp_path: Path) -> None:
    [block] = [block for block in CONSOLE.findall(README) if "turnledger chat" in block]
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    commands = COMMAND.findall(block)
    assert len(commands) == 2
    for command, printed in commands:
        told = re.sub(r"\bturnledger ", "python -m turnledger ", command)
        done = subprocess.run(
            ["bash", "-c", told],
            env={**environment(), **home},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, printed), done.stderr
