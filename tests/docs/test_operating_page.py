"""The page for operators: its commands, run in the order in which they stand there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
NEEDED = ("bash", "curl", "nginx", "openssl")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    shell = Shell(tmp_path_factory.mktemp("operator"))
    try:
        yield shell
    finally:
        shell.close()


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


class Shell:
    """Runs blocks of the page for somebody who has nothing yet but an empty home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._ports = {"8383": str(free_port()), "8443": str(free_port())}
        programs = home / "bin"
        programs.mkdir()
        program = programs / "turnledger"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m turnledger "$@"\n')
        program.chmod(0o700)
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self._environ = {
            **kept,
            "HOME": str(home),
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), kept.get("PYTHONPATH", "")]),
        }
        self._serving: subprocess.Popen[str] | None = None

    def run(self, block: str) -> str:
        """Run a block to its end; what it printed."""
        # Into files: a proxy that stays would hold a pipe open.
        printed, problems = self.home / "printed", self.home / "problems"
        with printed.open("w") as out, problems.open("w") as err:
            done = subprocess.run(
                self._command(block), env=self._environ, cwd=self.home, stdout=out, stderr=err, check=False
            )
        assert done.returncode == 0, f"{block}\n{printed.read_text()}\n{problems.read_text()}"
        return printed.read_text()

    def serve(self, block: str) -> str:
        """Run the block that goes on in the background; the line it announces itself with."""
        log = (self.home / "server.log").open("w")
        with log:
            self._serving = subprocess.Popen(
                self._command(block),
                env=self._environ,
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._serving.stdout is not None
        return self._serving.stdout.readline()

    def _command(self, block: str) -> list[str]:
        for printed, port in self._ports.items():
            block = block.replace(printed, port)
        block = block.replace("[server]\n", f"[server]\nport = {self._ports['8383']}\n", 1)
        return ["bash", "-euo", "pipefail", "-c", block]

    def close(self) -> None:
        for name in ("turnledger.pid", "proxy/nginx.pid"):
            file = self.home / name
            if file.exists():
                os.kill(int(file.read_text()), signal.SIGTERM)
        if self._serving is not None:
            assert self._serving.stdout is not None
            self._serving.stdout.read()  # to the end of the server, which holds it open
            self._serving.stdout.close()
            self._serving.wait()


def block_with(text: str) -> str:
    """The block of the page that has this text."""
    (found,) = [block for block in BLOCKS if text in block]
    return found


@pytest.mark.timeout(300)
def test_its_commands_lead_from_nothing_to_a_guarded_server_behind_tls(shell: Shell) -> None:
    left = [block for block in BLOCKS if "pip install" not in block]

    def run(text: str) -> str:
        left.remove(block_with(text))
        return shell.run(block_with(text))

    run("mkdir -p ~/.config/turnledger")
    assert "FAIL" not in run("turnledger doctor")
    run("--scopes chats:read,chats:write,turns:run,admin")
    assert (shell.home / "operator.token").stat().st_mode & 0o077 == 0
    left.remove(block_with("turnledger serve &"))
    assert "Turnledger is at http://127.0.0.1:" in shell.serve(block_with("turnledger serve &"))
    told = run("/readyz")
    assert told.startswith('{"status":"ready"}')
    assert '"id":"demo"' in told
    run("nginx -p")
    assert '"id":"demo"' in run("--cacert")
    made = msgspec.json.decode(run("/api/tokens"))
    assert (made["owner"], made["chat_scope"], made["models"]) == ("user-42", "support", ["demo"])
    answer = msgspec.json.decode(run("X-Conversation-Id: my-order"))
    assert answer["choices"][0]["message"]["content"]
    assert "Revoked" in run("turnledger tokens revoke")
    with pytest.raises(AssertionError):
        shell.run(block_with("X-Conversation-Id: my-order"))
    counted = run("8383/metrics")
    assert 'turnledger_turns_total{outcome="completed"} 1.0' in counted
    assert "nothing is wrong" in counted
    run("kill -HUP")
    assert shell.run(block_with("/readyz")).startswith('{"status":"ready"}')
    assert "1 conversations" in run("turnledger backup")
    assert left == []


def test_without_a_token_nobody_comes_in_through_the_proxy() -> None:
    assert "X-Forwarded-For" in block_with(
        "nginx -p"
    )  # without it, the server would take it for its own machine
