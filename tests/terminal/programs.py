"""`turnledger` in terminals: forks of a process that has imported what they need."""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Programs:
    """The process that forks, as its parent sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "LANG": "C.UTF-8"},
        )

    def start(self, terminal: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run the command in a terminal; return its process id once it holds the terminal open."""
        return self._ask(terminal=terminal, arguments=arguments, environ=environ)

    def wait(self, pid: int) -> int:
        """Return the exit code of a program, once it has ended."""
        return self._ask(wait=pid)

    def _ask(self, **what: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@functools.cache
def programs() -> Programs:
    """The one of this process, for as long as it lives."""
    made = Programs()
    atexit.register(made.close)
    return made


def main() -> None:
    """Do what the lines of standard input ask for."""
    for name in ("connect", "repl", "server", "store"):
        importlib.import_module(f"turnledger.cli.chat.{name}")
    gc.freeze()  # so that a fork leaves the pages of its parent alone
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            _, status = os.waitpid(asked["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            terminal = os.open(asked["terminal"], os.O_RDWR | os.O_NOCTTY)
            answer = os.fork()
            if answer == 0:
                return _become(terminal, asked["arguments"], asked["environ"])
            os.close(terminal)
        os.write(1, b"%d\n" % answer)
    return None


def _become(terminal: int, arguments: list[str], environ: dict[str, str]) -> None:
    """Be the program, in its terminal."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY)
    for number in range(3):
        os.dup2(terminal, number)
    os.close(terminal)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(each, "w", encoding="utf-8", closefd=False) for each in (1, 2))
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["turnledger", *arguments]
    importlib.import_module("turnledger.cli").main()


if __name__ == "__main__":
    main()
