"""The long form of tests that `make test` shortens or leaves out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SECONDS = 2400
ROOT = Path(__file__).parents[2]
HAS_LONG_FORM = re.compile(r"tests\.long_form import|\bon_clients\(|stores\.postgresql import")
"""Tests of the PostgreSQL store run on each version."""


def files() -> list[str]:
    """Return the test files that have a long form."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in tests if HAS_LONG_FORM.search(path.read_text("utf-8"))]


def prove() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal"]
    subprocess.run([*command, *files()], cwd=ROOT, env={**os.environ, "LONG_TESTS": "1"}, check=True)
