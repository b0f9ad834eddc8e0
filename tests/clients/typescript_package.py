"""The TypeScript client as it is tested: installed, built when its sources are newer than what was built."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "clients" / "typescript"
OLDEST_NODE = 20


@cache
def built() -> Path:
    """Build the package if its sources are newer, and return where it is. Skips the test where there is no
    Node that could; fails instead where everything has to be proven."""
    if (problem := _missing()) is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        pytest.skip(problem)
    with (PACKAGE / ".gitignore").open() as lock:  # any file that is there will do
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not (PACKAGE / "node_modules" / ".package-lock.json").exists():
            _run("npm", "ci", "--no-audit", "--no-fund")
        stamp = PACKAGE / "dist" / ".built"
        if not stamp.exists() or stamp.stat().st_mtime < _newest():
            _run("npm", "run", "--silent", "build")
            stamp.touch()
    return PACKAGE


def _missing() -> str | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "the TypeScript client needs Node and npm"
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    is_old = int(told.removeprefix("v").partition(".")[0]) < OLDEST_NODE
    return f"the TypeScript client needs Node {OLDEST_NODE} or newer, not {told.strip()}" if is_old else None


def _newest() -> float:
    sources = [path for folder in ("src", "test") for path in (PACKAGE / folder).rglob("*.ts")]
    return max(
        path.stat().st_mtime for path in (*sources, PACKAGE / "tsconfig.json", PACKAGE / "package.json")
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"
