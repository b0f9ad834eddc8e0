"""The watchdog: a thread that reports an event loop that stands still, and memory above the limit."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnledger.server.ops.logs import log

LOOK_EVERY = 1.0
"""Seconds between looks at the loop and the memory."""
STALLED_AFTER = 5.0
"""Seconds without a turn of the loop after which it is reported: every client waits meanwhile."""
_FRAMES = 15
"""Innermost places in the code that are reported of a loop that stands still."""


def resident_bytes(pid: int) -> int | None:
    """Return how much memory a process takes; None where the system does not tell (all but Linux)."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Watchdog:
    """Watches the loop and the process that it is made in. Whoever replaces workers acts on its own; this is
    for the log, so that an operator knows what happened."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most_bytes = most_bytes
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._is_over = threading.Event()
        self._beat_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stalled = False
        self._is_large = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs."""
        thread = threading.Thread(target=self._run, name="turnledger-watchdog", daemon=True)
        self._beat()
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            if self._timer is not None:
                self._timer.cancel()
            thread.join()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._timer = self._loop.call_later(LOOK_EVERY, self._beat)

    def _run(self) -> None:
        while not self._is_over.wait(LOOK_EVERY):
            self.look(time.monotonic(), resident_bytes(os.getpid()))

    def look(self, now: float, resident: int | None) -> None:
        """Report what has begun or ended since the last look."""
        silence = now - self._beat_at
        if silence > STALLED_AFTER and not self._is_stalled:
            self._is_stalled = True
            log.error("event_loop_stalled", seconds=round(silence, 1), at=self._where())
        elif silence <= STALLED_AFTER and self._is_stalled:
            self._is_stalled = False
            log.warning("event_loop_goes_on")
        is_large = resident is not None and self._most_bytes is not None and resident > self._most_bytes
        if is_large and not self._is_large:
            log.error("memory_above_limit", bytes=resident, limit=self._most_bytes)
        self._is_large = is_large

    def _where(self) -> list[str]:
        """Name the places in the code where the loop is; no values, which may be anybody's words."""
        frame = sys._current_frames().get(self._loop_thread)
        summary = traceback.extract_stack(frame)[-_FRAMES:] if frame else []
        return [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in summary]
