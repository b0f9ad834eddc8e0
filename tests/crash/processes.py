"""Worker processes of the crash tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from random import Random
from subprocess import TimeoutExpired
from threading import Thread
from typing import Protocol

import apsw

from tests.fork_server import ForkedProcess

PATIENCE = 60.0


class Worker:
    """A worker process. A thread reads its output, so that it never blocks while it holds a lane."""

    def __init__(self, errors: Path, *command: str) -> None:
        self.errors = errors
        with errors.open("w") as file:
            self.process = ForkedProcess("tests.crash.worker", *command, stderr=file)
        self.output: list[str] = []
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def lines(self) -> Iterator[str]:
        """Yield each line as it is printed, until the process ends."""
        while (line := self._lines.get()) is not None:
            self.output.append(line)
            yield line
        self._lines.put(None)  # for the next caller

    def wait_for(self, word: str, times: int = 1) -> str:
        """Wait until it has printed this many lines that begin with this word; return the last."""
        for line in self.lines():
            if line.split()[0] == word:
                times -= 1
                if times == 0:
                    return line
        raise AssertionError(f"it ended and never printed {word!r}: {self.errors.read_text()}")

    def send_line(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end, read its last lines, and return its exit code. Kills it if it does not end."""
        with suppress(TimeoutExpired):
            self.process.wait(PATIENCE)
        self.process.kill()
        code = self.process.wait()
        self._listener.join()
        for _ in self.lines():
            pass
        self.process.close()
        return code

    def kill(self) -> None:
        self.process.kill()
        assert self.end() == -signal.SIGKILL


def suspend(process: ForkedProcess, database: Path) -> None:
    """Suspend it while it holds no write lock, which would block all others."""
    connection = apsw.Connection(str(database))
    connection.set_busy_timeout(10_000)
    try:
        connection.execute("BEGIN IMMEDIATE")
        process.send_signal(signal.SIGSTOP)
        process.wait_until_stopped()
    finally:
        connection.close()


def kill_a_worker(supervisor: int, dice: Random) -> bool:
    """Kill one of the workers of a server, unless it is the only one; return whether it was alive."""
    workers = children_of(supervisor)
    if len(workers) < 2:
        return False  # keep one, so that clients are served
    with suppress(ProcessLookupError):
        os.kill(dice.choice(workers), signal.SIGKILL)
        return True
    return False


def children_of(pid: int) -> list[int]:
    """Return those that a process has now: it may be starting or reaping others."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Start(Protocol):
    def __call__(self, what: str, *arguments: object, lease_time: float = 2.0) -> Worker: ...
