"""A clock that only tests advance."""

from __future__ import annotations


class FakeClock:
    """Wall and monotonic time: `Ledger.over(store, clock=FakeClock())`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._monotonic = 0.0
        self._asleep = 0.0
        self._boot = 1

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def boot_time(self) -> float:
        return self._monotonic + self._asleep

    def boot_id(self) -> str:
        return f"boot {self._boot}"

    def advance(self, seconds: float) -> None:
        """Advance the wall clock and the monotonic clock."""
        if seconds < 0:
            raise ValueError("seconds must not be negative; set a wall clock back with `set_wall_clock`")
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        """Suspend the machine: the wall clock advances, the monotonic clock does not."""
        self._asleep += seconds
        self._wall_ms += round(seconds * 1000)

    def restart(self, now_ms: int) -> None:
        """Restart the machine with this wall time. `monotonic` continues, since other simulated machines may
        share the clock."""
        self._boot += 1
        self._asleep = -self._monotonic
        self._wall_ms = now_ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._wall_ms = now_ms
