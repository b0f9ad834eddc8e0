"""A command on a real pseudo-terminal, and what the screen behind it shows when it has ended."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import NamedTuple

import pyte


class Shown(NamedTuple):
    """What somebody sees who ran a command."""

    lines: list[str]
    """Of the screen, from the first to the last that is not empty."""
    sent: bytes
    """All that was written to the terminal."""
    piped: str
    """What went into the pipe instead, if there was one."""
    code: int


def shown(
    *arguments: str, columns: int, rows: int = 60, env: dict[str, str] | None = None, pipes: bool = False
) -> Shown:
    """Run `turnledger` with these arguments in a window of this size; with `pipes`, its standard output goes
    into a pipe, and only the rest to the window."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    ours = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "turnledger", *arguments],
        stdin=follower,
        stdout=subprocess.PIPE if pipes else follower,
        stderr=follower,
        env={**ours, "TERM": "xterm-256color", **(env or {})},
        start_new_session=True,
    )
    os.close(follower)
    piped = process.stdout.read().decode() if process.stdout else ""
    sent = _all_of(leader)
    code = process.wait(60)
    if process.stdout:
        process.stdout.close()
    os.close(leader)
    screen = pyte.Screen(columns, rows)
    pyte.ByteStream(screen).feed(sent)
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return Shown(lines, sent, piped, code)


def _all_of(leader: int) -> bytes:
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # how Linux says that nobody holds the other end
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)
