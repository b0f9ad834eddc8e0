"""Commands on a pseudo-terminal, and the screen after each."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyte

ROWS = 60
ONE_BY_ONE = """
import fcntl, json, os, struct, sys, termios
from turnledger.cli.output import progress
from turnledger.cli.main import app
progress.DELAY = float(sys.argv[2])
ours = dict(os.environ)
for columns, env, arguments in json.loads(sys.argv[1]):
    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    os.environ.clear()
    os.environ.update(ours | env)
    try:
        app(arguments, prog_name="turnledger")
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.write(stream.fileno(), b"\\0%d\\0" % (end.code or 0))
"""
"""One process runs all commands, since starting one takes longer than a command."""


class WindowedCommand(NamedTuple):
    arguments: Sequence[str]
    columns: int
    env: Mapping[str, str]


class ScreenResult(NamedTuple):
    lines: list[str]
    """Lines of the screen, up to the last that is not empty."""
    sent: bytes
    """Bytes written to the terminal."""
    piped: str
    """Output to the pipe, if any."""
    code: int


def run_commands(
    commands: Sequence[WindowedCommand], *, pipes: bool = False, patience: float = 0.5
) -> list[ScreenResult]:
    """Run `turnledger` with each of these; with `pipes`, its standard output goes into a pipe, and only the
    rest to the window. `patience` are the seconds before a bar comes."""
    leader, follower = pty.openpty()
    ours = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    request = json.dumps([(ran.columns, dict(ran.env), list(ran.arguments)) for ran in commands])
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_BY_ONE, request, str(patience)],
        stdin=follower,
        stdout=subprocess.PIPE if pipes else follower,
        stderr=follower,
        env={**ours, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    with process:
        os.close(follower)
        piped = process.stdout.read() if process.stdout else b""
        sent = _all_of(leader)
    os.close(leader)
    assert process.returncode == 0
    parts = _parts(sent, marks=1 if pipes else 2)
    texts = [text.decode() for text, _ in _parts(piped, marks=1)] if pipes else [""] * len(parts)
    return [
        _shown(text, code, ran.columns, piped)
        for ran, (text, code), piped in zip(commands, parts, texts, strict=True)
    ]


def _parts(sent: bytes, *, marks: int) -> list[tuple[bytes, int]]:
    """Split the output by command, each with its exit code, which follows it in each stream."""
    pieces = sent.split(b"\0")
    step = 2 * marks
    return [(pieces[at], int(pieces[at + 1])) for at in range(0, len(pieces) - 1, step)]


def _shown(sent: bytes, code: int, columns: int, piped: str) -> ScreenResult:
    screen = pyte.Screen(columns, ROWS)
    pyte.ByteStream(screen).feed(sent)
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return ScreenResult(lines, sent, piped, code)


def _all_of(leader: int) -> bytes:
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # Linux: the other end is closed
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)
