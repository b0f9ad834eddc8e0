"""Scripts of pages, each in a fork of a process that has imported the packages.

Imports take longer than most examples run. A script still has only its own imports: packages do not show
modules that were imported beforehand.
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
"""Further imports, for scripts that import these."""


def run_script(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder, with warnings as errors."""
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
    """The forking process, which runs one script at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def run(self, command: list[str], cwd: Path, files: list[Path]) -> int:
        """Run a script with its output in these files; return its exit code."""
        request = {"command": command, "cwd": str(cwd), "files": list(map(str, files))}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        reply = self._process.stdout.readline()
        assert reply, "The process that runs scripts has ended."
        return int(reply)

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()


def main() -> None:
    """Run the scripts named on standard input, until it closes."""
    for name in ALWAYS:
        _import_unseen(name)
    line = b""
    while byte := os.read(0, 1):  # one byte at a time, so that a fork does not read the next line
        line += byte
        if byte != b"\n":
            continue
        request, line = json.loads(line), b""
        _import_beforehand(Path(request["command"][0]).read_text("utf-8"))
        gc.collect()
        gc.freeze()  # so that forks copy fewer pages
        child = os.fork()
        if child == 0:
            return _become(**request)
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))
    return None


def _import_beforehand(code: str) -> None:
    for named, module in IF_NAMED.items():
        if re.search(rf"^(?:from|import) {re.escape(named)}\b", code, re.MULTILINE):
            _import_unseen(module)


def _import_unseen(name: str) -> None:
    """Import a module without making it visible in our packages."""
    importlib.import_module(name)
    for loaded, module in list(sys.modules.items()):
        package, _, last = loaded.rpartition(".")
        if loaded.startswith("turnledger.") and vars(sys.modules[package]).get(last) is module:
            delattr(sys.modules[package], last)


def _become(command: list[str], cwd: str, files: list[str]) -> None:
    """Become the process of this script, up to the end of the interpreter."""
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
