"""Where servers are born that will be killed: `python -m tests.clients.nursery`, told by lines what to do.

A server takes a second to be imported, and a moment to begin. This process imports it once, and every server
is a fork of it: a process like any other, on a file, with the demo model.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.crash.killed_server import environment


def main() -> None:
    """Fork a server for each line of settings, and tell when it has ended."""
    from turnledger.runners.demo import DemoModel
    from turnledger.server.ops.logs import configure

    defaults = DemoModel.__init__.__kwdefaults__
    assert defaults is not None
    for line in sys.stdin:
        told = json.loads(line)
        if "wait" in told:
            _, status = os.waitpid(told["wait"], 0)
            say(ended=told["wait"], code=os.waitstatus_to_exitcode(status))
            continue
        child = os.fork()
        if child == 0:
            defaults["pace"] = told.pop("pace")
            configure("json", "warning", sys.stderr)
            be_a_server(told)
        say(born=child)


def be_a_server(settings: dict[str, Any]) -> None:
    """Serve until told to end; never returns."""
    from turnledger.server.config.settings import Settings
    from turnledger.server.listen.serve import serve

    code = 1
    try:
        serve(Settings(**settings), os.environ, lambda url, _: say(pid=os.getpid(), url=url))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)  # what is on standard input is for the parent


def say(**told: Any) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")  # whole lines, whoever else says something


class Nursery:
    """The process, as its parent sees it."""

    def __init__(self, folder: Path) -> None:
        self.errors = folder / "errors"
        with self.errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.clients.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(folder),
            )

    async def born(self, store: str, *, pace: float = 0.005, grace: float = 0.2) -> tuple[int, str]:
        """Have a server started, and wait until it can be asked; return its process and its URL."""
        self._tell(store=store, pace=pace, grace=grace, port=0)
        pid: int | None = None
        url: str | None = None
        while pid is None or url is None:
            told = await self._heard()
            pid, url = told.get("born", pid), told.get("url", url)
        return pid, url

    async def end(self, pid: int, number: signal.Signals) -> int:
        """Have a server end, and wait for that; return its exit code."""
        os.kill(pid, number)
        self._tell(wait=pid)
        told = await self._heard()
        assert told.get("ended") == pid, told
        return int(told["code"])

    def close(self) -> None:
        """End with all that were born here and have not ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _tell(self, **told: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()

    async def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, self.errors.read_text()
        told: dict[str, Any] = json.loads(line)
        return told


if __name__ == "__main__":
    main()
