"""Proofs that take too long for every test run. Each module here is one, with a function `prove`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_tests(*arguments: str, **environ: str) -> None:
    """Run tests on all cores, with these variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", *arguments]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, check=True)
