"""The watchdog: a thread that detects a stalled event loop, and memory above the limit.

A supervisor replaces such a worker. A server of one process exits, for its service manager to restart it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from turnledger.server.ops.logs import log

CHECK_EVERY = 1.0
"""Seconds between checks."""
STALLED_AFTER = 5.0
"""Seconds without an iteration of the loop after which it is reported: every client waits meanwhile."""
YOUNG = 10.0
"""Seconds: a process that exceeds its memory this early would do so again after a restart."""
_FRAMES = 15
"""Innermost stack frames that are reported of a stalled loop."""


def resident_bytes(pid: int) -> int | None:
    """Return the memory that a process uses; None where the system does not report it (all but Linux)."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def machine_bytes(cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory of the machine, or of the container or service around this process; None where the
    system does not report it."""
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        own = Path("/proc/self/cgroup").read_text().split("::")[-1].split()[0]
    except (OSError, ValueError, IndexError):
        return None
    home = cgroups / own.lstrip("/")
    above = [folder / "memory.max" for folder in (home, *home.parents) if folder.is_relative_to(cgroups)]
    # Version 2 of cgroups, and containers in version 1.
    for limit in (*above, cgroups / "memory" / "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(limit.read_text()))
    return min(limits)


@dataclass(frozen=True)
class Remedy:
    """What a process without a supervisor does. Called by the watchdog's thread."""

    retire: Callable[[], object]
    """Shut down gracefully: the process uses too much memory."""
    abort: Callable[[], object]
    """Exit at once: the stalled loop could not shut down gracefully."""
    stall_wait: float


class Watchdog:
    """Watches the loop and the process it is created in. Without a remedy it only logs."""

    def __init__(self, max_bytes: int | None, remedy: Remedy | None = None) -> None:
        self._max_bytes = max_bytes
        self._remedy = remedy
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._is_over = threading.Event()
        self._began_at = self._beat_at = self._checked_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stalled = False
        self._is_large = False
        self._is_retiring = False

    @contextmanager
    def watch(self) -> Iterator[None]:
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
        self._timer = self._loop.call_later(CHECK_EVERY, self._beat)

    def _run(self) -> None:
        while not self._is_over.wait(CHECK_EVERY):
            self.check(time.monotonic(), resident_bytes(os.getpid()))

    def check(self, now: float, resident: int | None) -> None:
        """Log what has begun or ended since the last check, and act on it."""
        before, self._checked_at = self._checked_at, now
        if self._remedy is not None and now - before > self._remedy.stall_wait / 2:
            self._beat_at = now  # this thread stalled, too: the whole process was paused
        self._check_loop(now - self._beat_at)
        self._check_memory(now - self._began_at, resident)

    def _check_loop(self, silence: float) -> None:
        if silence > STALLED_AFTER and not self._is_stalled:
            self._is_stalled = True
            log.error("event_loop_stalled", seconds=round(silence, 1), at=self._loop_stack())
        elif silence <= STALLED_AFTER and self._is_stalled:
            self._is_stalled = False
            log.warning("event_loop_goes_on")
        if self._remedy is not None and silence > self._remedy.stall_wait:
            log.error("server_stalled", seconds=round(silence, 1), at=self._loop_stack())
            self._remedy.abort()

    def _check_memory(self, age: float, resident: int | None) -> None:
        is_large = resident is not None and self._max_bytes is not None and resident > self._max_bytes
        if is_large and not self._is_large:
            log.error("memory_above_limit", bytes=resident, limit=self._max_bytes)
        self._is_large = is_large
        if is_large and age > YOUNG and self._remedy is not None and not self._is_retiring:
            self._is_retiring = True
            self._remedy.retire()

    def _loop_stack(self) -> list[str]:
        """Return the stack of the loop, without values, which may quote a user."""
        frame = sys._current_frames().get(self._loop_thread)
        summary = traceback.extract_stack(frame)[-_FRAMES:] if frame else []
        return [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in summary]
