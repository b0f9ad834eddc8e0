"""A failing command prints one line with the remedy, and exits with its code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import add_turns
from turnledger.cli import NEEDS_SERVER
from turnledger.cli.failures import NEEDS_CLI, CommandGroup
from turnledger.errors import StoreFull
from turnledger.model.access.token import is_token_text

COMMAND = (sys.executable, "-m", "turnledger")
WITHOUT = """
import json, os, sys
from turnledger.cli import main
import turnledger.cli.main, turnledger.ledger  # once for all, and none of what may be missing
for missing, command in json.loads(sys.argv[1]):
    assert not {*missing} & {*sys.modules}
    if os.fork() == 0:
        sys.modules.update(dict.fromkeys(missing))
        sys.argv[1:] = command
        main()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
"""Runs commands, each as if some packages were not there, and prints how it ended."""
SERVER_PACKAGES = ("starlette", "uvicorn", "prometheus_client", "httptools")


def ended_with(problem: BaseException) -> tuple[int, str, str]:
    """How a command ends that raises this: its code, and what it wrote."""
    app = typer.Typer(cls=CommandGroup)

    @app.callback()
    def group() -> None: ...

    @app.command()
    def fail() -> None:
        raise problem

    done = CliRunner().invoke(app, ["fail"])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (StoreFull("No room.\n\x1b[2J"), 2, "store_full: No room.\\n\\x1b[2J\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (PermissionError(13, "Permission denied", "/x\n"), 2, "system_error: Permission denied (/x\\n)\n"),
        (ModuleNotFoundError("No module", name="rich.console"), 2, f"{NEEDS_CLI}\n"),
        (ModuleNotFoundError("No module", name="httpx2"), 2, f"{NEEDS_CLI}\n"),
        (ModuleNotFoundError("No module", name="starlette.types"), 2, f"{NEEDS_SERVER}\n"),
    ],
)
def test_command_failure_is_one_line_and_an_exit_code(
    problem: BaseException, code: int, message: str
) -> None:
    assert ended_with(problem) == (code, "", message)


def test_internal_error_is_not_hidden() -> None:
    app = typer.Typer(cls=CommandGroup)

    @app.callback()
    def group() -> None: ...

    @app.command()
    def fail() -> None:
        raise ModuleNotFoundError("No module", name="turnledger.nowhere")

    with pytest.raises(ModuleNotFoundError):
        CliRunner().invoke(app, ["fail"], catch_exceptions=False)


def test_missing_server_packages_are_named_and_tokens_still_work(
    tmp_path: Path,
) -> None:
    serve = ["serve", "--port", "0", "--store", "memory:", "--log-format", "console"]
    commands = [((package,), serve) for package in SERVER_PACKAGES[:4]]
    commands += [(("httptools",), ["doctor"]), (SERVER_PACKAGES, ["tokens", "create"])]
    command = [sys.executable, "-c", WITHOUT, json.dumps(commands)]
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=110)
    *codes, token, last = done.stdout.split()
    assert (codes, last) == (["2"] * 5, "0")
    assert done.stderr.startswith(f"{NEEDS_SERVER}\n" * 5 + "Created the store sqlite:///")
    assert is_token_text(token)
    assert (tmp_path / "turnledger" / "chats.db").exists()
    assert "turnledger[server]" in NEEDS_SERVER


def test_closed_output_pipe_ends_a_command_silently(url: str) -> None:
    add_turns(url, "k", *((f"question {number}" * 100, "Yes." * 1_000) for number in range(40)))
    command = [*COMMAND, "chats", "show", "k", "--store", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as showing:
        assert showing.stdout
        assert showing.stderr
        assert showing.stdout.readline().startswith(b"question 0")
        showing.stdout.close()
        assert (showing.stderr.read(), showing.wait(30)) == (b"", 141)


def test_ctrl_c_ends_an_import_that_waits_for_input(url: str) -> None:
    importing = subprocess.Popen(
        [*COMMAND, "chats", "import", "-", "--store", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Tests that run in the background may have inherited that it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with importing:
        assert importing.stdin
        assert importing.stdout
        assert importing.stderr
        try:
            importing.stdin.write(b"nothing\nnothing\n")
            importing.stdin.flush()
            assert importing.stdout.readline().startswith(b"line 1: refused")
            importing.send_signal(signal.SIGINT)
            assert (importing.wait(30), importing.stderr.read()) == (130, b"")
        finally:
            importing.kill()


def test_opened_file_never_gets_the_descriptor_of_a_closed_stream(tmp_path: Path) -> None:
    code = f"""
import sys, turnledger.cli as c
def run():
    print("nowhere")
    print("nowhere", file=sys.stderr)
    with open("{tmp_path}/number", "w") as file:
        file.write(str(file.fileno()))
c._run = run
c.main()
"""
    done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code], timeout=60)
    assert (done.returncode, int((tmp_path / "number").read_text()) > 2) == (0, True)


def test_closed_stdout_is_ignored_and_a_full_one_reported(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    command = f'"{sys.executable}" -m turnledger chats list --store {url}'
    done = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    if Path("/dev/full").exists():
        done = subprocess.run(
            ["sh", "-c", f"{command} > /dev/full"], capture_output=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (2, b"system_error: No space left on device\n")


def test_unencodable_characters_are_escaped(url: str) -> None:
    add_turns(url, "k", ("Grüße 漢", "Hi."))
    done = subprocess.run(
        [*COMMAND, "chats", "list", "--store", url],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("Grüße \\u6f22\n".encode("latin-1"))
