"""Requests within and beyond the description of the API, 100 of each kind, for every way to authenticate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECONDS = 1800
EXAMPLES = 100


def prove() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--timeout", str(SECONDS)]
    subprocess.run(
        [*command, "tests/fuzz/test_openapi_document.py"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "FUZZ_EXAMPLES": str(EXAMPLES)},
        check=True,
    )
