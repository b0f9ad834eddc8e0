"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """Wall time and monotonic time, moved by hand: `Ledger.over(store, clock=FakeClock())`."""

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
        """Let this much time pass, on the wall and on the monotonic clock."""
        if seconds < 0:
            raise ValueError("time does not go back; a wall clock that is set back is `set_wall_clock`")
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        """Let the machine sleep for so long: the wall clock goes on, and the monotonic clock stands still."""
        self._asleep += seconds
        self._wall_ms += round(seconds * 1000)

    def restart(self, now_ms: int) -> None:
        """Start the machine anew, with its wall clock at this time. `monotonic` goes on: other machines that
        the test plays may use the same clock."""
        self._boot += 1
        self._asleep = -self._monotonic
        self._wall_ms = now_ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall clock, also back, as administrators and time servers do. No time passes."""
        self._wall_ms = now_ms
