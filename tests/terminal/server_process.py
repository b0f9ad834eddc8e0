"""A server process that can be killed and restarted."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

from tests.fork_server import ForkedProcess

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
        store = f"sqlite:///{self.folder}/served.db"
        with open(os.devnull, "w") as unread:
            self._process = ForkedProcess(
                *("turnledger", "serve", "--port", self._port, *self._flags, "--store", store),
                env={**os.environ, "HOME": str(self.folder)},
                stderr=unread,
            )
        announced = next(filter(None, map(ANNOUNCED.match, self._process.stdout)), None)
        assert announced is not None
        self.url, self._port = announced[1], announced[2]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
