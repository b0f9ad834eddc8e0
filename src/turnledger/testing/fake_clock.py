"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """Wall time and monotonic time, moved by hand: `Ledger.over(store, clock=FakeClock())`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let this much time pass, on the wall and on the monotonic clock."""
        if seconds < 0:
            raise ValueError("time does not go back; a wall clock that is set back is `set_wall_clock`")
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall clock, also back, as administrators and time servers do. No time passes."""
        self._wall_ms = now_ms
