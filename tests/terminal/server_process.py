"""A server process that can be killed and restarted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
ANNOUNCED = re.compile(r"Turnledger is at (http://127\.0\.0\.1:([0-9]+))")


class RestartableServer:
    """`turnledger serve` on a store in this folder, with these flags."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._flags = flags
        self._port = "0"
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it, after a kill at the same port."""
        command = [sys.executable, "-m", "turnledger", "serve", "--port", self._port, *self._flags]
        self._process = subprocess.Popen(
            [*command, "--store", f"sqlite:///{self.folder}/served.db"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        announced = next(filter(None, map(ANNOUNCED.match, self._process.stdout)), None)
        assert announced is not None
        self.url, self._port = announced[1], announced[2]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
