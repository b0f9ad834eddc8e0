"""Keys while a turn runs: Ctrl-C is reported to waiting tasks; other keys wait for the next prompt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import Any

HAS_TERMIOS = find_spec("termios") is not None
"""Not on Windows, where keys wait anyway."""


class Interrupts:
    """Ctrl-C, for any number of tasks to wait for."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        for each in tuple(self._waiters):
            if not each.done():
                each.set_result(None)

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


@contextmanager
def catch_interrupts() -> Iterator[Interrupts]:
    """Report Ctrl-C instead of ending the program."""
    interrupts, loop = Interrupts(), asyncio.get_running_loop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(interrupts.notify)

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def hold_keys() -> Iterator[None]:
    """Do not echo keys typed meanwhile; keep them for the next prompt."""
    if not HAS_TERMIOS or not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    previous: list[Any] = termios.tcgetattr(terminal)
    silent = [*previous[:6], list(previous[6])]
    silent[0] &= ~termios.ICRNL  # otherwise Enter would be read as a line feed
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    # Ctrl-Z waits for the prompt, which leaves the terminal in order.
    silent[6][termios.VSUSP] = bytes([os.fpathconf(terminal, "PC_VDISABLE")])
    termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, previous)


def drop_keys() -> None:
    """Drop keys typed meanwhile: they were meant for something that did not happen."""
    if HAS_TERMIOS and sys.stdin.isatty():
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
