"""`turnledger chat` in pipes: one turn, plain output, and an exit code that says how it went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.terminal.conftest import Home
from tests.terminal.upstream import scripted
from tests.terminal.window import ROOT
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Gate


def started(home: Home, *arguments: str) -> subprocess.Popen[bytes]:
    folders = {name: str(home.path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    return subprocess.Popen(
        [sys.executable, "-m", "turnledger", "chat", *arguments],
        env={**os.environ, **folders, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_one_turn_as_it_is_without_what_controls_a_terminal(home: Home) -> None:
    with scripted(["# Not rendered\n\n\ttab \x1b[31mred\x1b[0m [x](y)\n"]) as model:
        told, problems = started(home, "--upstream", model.url).communicate(b"Hello\n")
    assert told == b"# Not rendered\n\n\ttab \\x1b[31mred\\x1b[0m [x](y)\n"
    assert problems == b""
    assert home.turns()[0].input[0].text == "Hello"


def test_a_turn_that_fails_is_told_by_the_exit_code(home: Home) -> None:
    failing = started(home)
    told, problems = failing.communicate(b"/fail after 2")
    assert (told, failing.returncode) == (b"You said\n", 2)
    assert problems == b"model_unavailable: The demo model failed, as it was asked to.\n"
    empty = started(home)
    assert b"no_new_input" in empty.communicate(b" \n")[1]
    assert empty.returncode == 2


def test_ctrl_c_keeps_what_was_said(home: Home) -> None:
    gate = Gate()
    with scripted(["So far", gate]) as model:
        stopped = started(home, "--upstream", model.url)
        assert stopped.stdin is not None
        assert stopped.stdout is not None
        stopped.stdin.write(b"Hello")
        stopped.stdin.close()
        assert stopped.stdout.read(6) == b"So far"
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(20) == 130
        stopped.stdout.close()
        assert stopped.stderr is not None
        assert stopped.stderr.read() == b""
        stopped.stderr.close()
    assert [(turn.kind, turn.text) for turn in home.turns()] == [(TurnKind.INTERRUPTED, "So far")]


def test_who_reads_no_more_ends_it_quietly(home: Home) -> None:
    reading = started(home)
    assert reading.stdin is not None
    assert reading.stdout is not None
    reading.stdin.write(b"/count 10000")
    reading.stdin.close()
    assert reading.stdout.read(5) == b"1 2 3"
    reading.stdout.close()
    assert reading.wait(20) == 141
    assert reading.stderr is not None
    assert reading.stderr.read() == b""
    reading.stderr.close()
    assert [turn.kind for turn in home.turns()] == [TurnKind.INTERRUPTED]
