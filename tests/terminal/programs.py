"""`turnledger` in terminals: forks of a process that has imported its modules."""

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
    """The forking process, as its parent sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "LANG": "C.UTF-8"},
        )

    def start(self, terminal: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run the command in a terminal; return its process id once it has opened the terminal."""
        return self._request(terminal=terminal, arguments=arguments, environ=environ)

    def wait(self, pid: int) -> int:
        """Wait for the end of a program; return its exit code."""
        return self._request(wait=pid)

    def _request(self, **what: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@functools.cache
def programs() -> Programs:
    made = Programs()
    atexit.register(made.close)
    return made


def main() -> None:
    """Serve the requests on standard input, one per line."""
    for name in ("connect", "repl", "server", "store"):
        importlib.import_module(f"turnledger.cli.chat.{name}")
    gc.freeze()  # so that forks copy fewer pages
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            terminal = os.open(request["terminal"], os.O_RDWR | os.O_NOCTTY)
            answer = os.fork()
            if answer == 0:
                return _become(terminal, request["arguments"], request["environ"])
            os.close(terminal)
        os.write(1, b"%d\n" % answer)
    return None


def _become(terminal: int, arguments: list[str], environ: dict[str, str]) -> None:
    """Become the program, in its terminal."""
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
