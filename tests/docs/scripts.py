"""Scripts of pages, each in a process of its own: a fork of one that has imported what others have written.

The packages that pages use take longer to import than most examples run. A script still has only what it
imports itself: packages do not show their modules that were imported beforehand.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
ALWAYS = ("asyncio", "turnledger.ledger", "turnledger.testing.scripted_model")
IF_NAMED = {"openai": "openai", "turnledger.client": "turnledger.client"}
"""What is imported beforehand, too, for scripts that import something."""


def run_script(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder. Every warning is an error."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("out", "err")]
        code = _forking().run([str(script), *arguments], cwd, files)
        out, err = (file.read_text("utf-8") for file in files)
    return subprocess.CompletedProcess([str(script), *arguments], code, out, err)


@functools.cache
def _forking() -> Forking:
    forking = Forking()
    atexit.register(forking.close)
    return forking


class Forking:
    """The process whose forks run scripts, one at a time, as its parent sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def run(self, command: list[str], cwd: Path, files: list[Path]) -> int:
        """Run one to its end, with what it prints in these files; its exit code."""
        asked = {"command": command, "cwd": str(cwd), "files": list(map(str, files))}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline()
        assert told, "The process that runs scripts has ended."
        return int(told)

    def close(self) -> None:
        """Let it end."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()


def main() -> None:
    """Run scripts as told by lines on standard input, until it ends."""
    for name in ALWAYS:
        _import_unseen(name)
    line = b""
    while byte := os.read(0, 1):  # no more than one line: a fork has no part in the next
        line += byte
        if byte != b"\n":
            continue
        asked, line = json.loads(line), b""
        _import_beforehand(Path(asked["command"][0]).read_text("utf-8"))
        gc.collect()
        gc.freeze()  # so that a fork leaves the pages of its parent alone
        child = os.fork()
        if child == 0:
            return _become(**asked)
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))
    return None


def _import_beforehand(code: str) -> None:
    for named, module in IF_NAMED.items():
        if re.search(rf"^(?:from|import) {re.escape(named)}\b", code, re.MULTILINE):
            _import_unseen(module)


def _import_unseen(name: str) -> None:
    """Import a module, and have no package of ours show it or what it imports."""
    importlib.import_module(name)
    for loaded, module in list(sys.modules.items()):
        package, _, last = loaded.rpartition(".")
        if loaded.startswith("turnledger.") and vars(sys.modules[package]).get(last) is module:
            delattr(sys.modules[package], last)


def _become(command: list[str], cwd: str, files: list[str]) -> None:
    """Be the process of this script, to the end of the interpreter."""
    os.chdir(cwd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, source in enumerate([nothing, *(os.open(name, os.O_WRONLY | os.O_CREAT) for name in files)]):
        os.dup2(source, number)
        os.close(source)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main()
