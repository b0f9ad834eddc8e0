"""The clock of the machine."""

from __future__ import annotations

import functools
import time
from pathlib import Path


class SystemClock:
    """Wall time and monotonic time as the operating system gives them."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def boot_time(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK) if _BOOT_CLOCK is not None else time.monotonic()

    def boot_id(self) -> str:
        return _boot_id()


_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


@functools.cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
