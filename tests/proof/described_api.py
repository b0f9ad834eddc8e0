"""Requests within and beyond the description of the API, 100 of each kind, for every way to authenticate, and
200 crowds of clients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECONDS = 1800
EXAMPLES = 100
CROWDS = 200


def prove() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--timeout", str(SECONDS)]
    subprocess.run(
        [*command, "tests/fuzz"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "FUZZ_EXAMPLES": str(EXAMPLES), "FUZZ_SEEDS": str(CROWDS)},
        check=True,
    )
