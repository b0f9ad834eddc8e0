"""What all commands have in common: they start soon, say what they take, and offer it to shells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import say
from turnledger.cli.main import app

run = CliRunner().invoke
SLOW = ("apsw", "httpx2", "msgspec", "prompt_toolkit", "pydantic", "rich", "starlette", "structlog")
IN_BASH = """
eval "$(turnledger --show-completion)"
COMP_WORDS=(turnledger chats show or) COMP_CWORD=3
_turnledger_completion turnledger
printf '%s,' "${COMPREPLY[@]}"
"""


def test_help_waits_for_nothing_that_it_does_not_need() -> None:
    code = "import sys, turnledger.cli.main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert "turnledger.cli.main" in loaded
    ours = [name for name in loaded if name.startswith("turnledger.") and ".cli" not in name]
    assert sorted(ours) == [
        "turnledger.errors",
        "turnledger.model",
        "turnledger.model.text",
        "turnledger.model.text.plain",
    ]
    assert [name for name in SLOW if name in loaded] == []


def test_ctrl_c_before_a_command_runs_is_quiet() -> None:
    code = """
import sys
class Interrupted:
    @property
    def app(self):
        raise KeyboardInterrupt
sys.modules["turnledger.cli.main"] = Interrupted()
from turnledger.cli import main
main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("command", [(), ("chats",), ("tokens",)])
def test_each_command_says_what_it_is_for(command: tuple[str, ...]) -> None:
    done = run(app, [*command, "--help"], prog_name="turnledger")
    assert done.exit_code == 0
    named = done.stdout.split("Commands:\n")[1].splitlines()
    assert len(named) >= 3
    assert all(len(line.split()) > 2 for line in named)
    assert "\x1b" not in done.output


def test_it_says_which_version_it_is() -> None:
    assert run(app, ["--version"]).stdout.startswith("turnledger 0.")


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs bash")
def test_bash_completes_the_name_of_a_chat(tmp_path: Path) -> None:
    (tmp_path / "turnledger").mkdir()
    for name in ("order", "origin", "weather"):
        say(f"sqlite:///{tmp_path}/turnledger/chats.db", name, ("Hello", "Hi."))
    command = tmp_path / "bin" / "turnledger"
    command.parent.mkdir()
    command.write_text(f'#!/bin/bash\nexec "{sys.executable}" -m turnledger "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", "-c", IN_BASH],
        env={**env, "PATH": f"{command.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("origin,order,", "")
