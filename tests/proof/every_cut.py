"""Connections that are cut at every byte: a turn is whole, kept or gone by its policy, and can be read on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECONDS = 1800


def prove() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--timeout", str(SECONDS)]
    subprocess.run(
        [*command, "tests/crash/test_cut_connections.py"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "CUT_EVERY": "1"},
        check=True,
    )
