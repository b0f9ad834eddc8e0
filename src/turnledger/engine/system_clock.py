"""The clock of the machine."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time and monotonic time as the operating system gives them."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
