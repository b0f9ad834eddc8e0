"""A terminal window: a program in a pseudo-terminal, and its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import pyte

from tests.terminal.programs import programs

PATIENCE = 30.0
"""Seconds after which a wait fails."""
SCROLLED = 1_000

PROMPT = re.compile(r"[0-9]+ ›.*")
"""Beginning of an input line."""

ENTER, ESCAPE, UP, DOWN = "\r", "\x1b", "\x1b[A", "\x1b[B"
CTRL_C, CTRL_D, CTRL_J, CTRL_O = "\x03", "\x04", "\x0a", "\x0f"


class _Screen(pyte.HistoryScreen):
    """A screen that answers terminal queries."""

    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], None]) -> None:
        super().__init__(columns, rows, history=SCROLLED)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())


class Window:
    """Runs `turnledger` with these arguments, until it is closed."""

    def __init__(
        self,
        *arguments: str,
        home: Path,
        columns: int = 80,
        rows: int = 24,
        more: Mapping[str, str] | None = None,
    ) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            **{name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")},
            **(more or {}),
        }
        self.raw = b""
        self.status: int | None = None
        self._terminal, slave = pty.openpty()
        self._set_size(columns, rows)
        self._program = programs().start(os.ttyname(slave), arguments, environ)
        os.close(slave)
        self._screen = _Screen(columns, rows, lambda data: os.write(self._terminal, data) and None)
        self._stream = pyte.ByteStream(self._screen)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            os.kill(self._program, signal.SIGKILL)
            programs().wait(self._program)
        os.close(self._terminal)

    def type(self, *keys: str) -> None:
        for each in keys:
            os.write(self._terminal, each.encode())

    def send(self, text: str) -> None:
        """Type a line, and Enter once it is shown: keys before a prompt are lost."""
        self.type(text)
        self.until(lambda: text[-20:] in self.last_input, text)
        before = self.everything.count(text)
        self.type(ENTER)
        # A failed text may already be back in the prompt.
        self.until(
            lambda: text[-20:] not in self.last_input or self.everything.count(text) > before,
            f"{text}, and Enter",
        )

    def ask(self, text: str, *shown: str) -> None:
        """Send a line, and wait until these texts are shown and the prompt is back."""
        self.send(text)
        for each in shown:
            self.see(each)
        self.ready()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._program, number)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        self._set_size(columns, rows)

    @property
    def lines(self) -> list[str]:
        """Lines in the window, without empty ones at the end."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    @property
    def scrolled(self) -> list[str]:
        width = self._screen.columns
        return [
            "".join(line[column].data for column in range(width)).rstrip()
            for line in self._screen.history.top
        ]

    @property
    def everything(self) -> str:
        """All lines that were printed and not erased."""
        return "\n".join([*self.scrolled, *self.lines]).rstrip()

    @property
    def one_line(self) -> str:
        """The same without line breaks, which depend on the width."""
        return " ".join(self.everything.split())

    def see(self, text: str, *, times: int = 1) -> None:
        """Wait until the text is in the window or above it."""
        self.until(lambda: self.everything.count(text) >= times, text)

    def see_not(self, text: str) -> None:
        """Wait until the text is gone from the window."""
        self.until(lambda: text not in self.text, f"not {text}")

    def ready(self) -> None:
        """Wait for the prompt and the line below it."""
        self.until(lambda: bool(PROMPT.fullmatch(self.last_input)) and self._is_below(), "the prompt")

    def _is_below(self) -> bool:
        below = self.lines[self._screen.cursor.y + 1 :]
        return any(below)

    @property
    def last_input(self) -> str:
        """The line of the cursor."""
        return self.lines[self._screen.cursor.y]

    def until(self, is_there: Callable[[], bool], what: str) -> None:
        """Read output until a condition of the screen holds."""
        deadline = time.monotonic() + PATIENCE
        while not is_there():
            left = deadline - time.monotonic()
            if left < 0 or not self._read(left):
                raise AssertionError(f"not seen: {what!r}\n--- the screen:\n{self.everything}\n---")

    def ended(self) -> int:
        """Wait for the end of the program; return its exit code."""
        while self._read(PATIENCE):
            pass
        self.status = programs().wait(self._program)
        return self.status

    def _read(self, patience: float) -> bool:
        """Read output; return False if none comes."""
        data = b""
        # All available output at once: rendering is slower than reading.
        while select.select([self._terminal], [], [], 0 if data else patience)[0]:
            try:
                data += (piece := os.read(self._terminal, 65_536))
            except OSError:  # the program has ended
                break
            if not piece:
                break
        self.raw += data
        self._stream.feed(data)
        return bool(data)
