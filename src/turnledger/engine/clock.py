"""The clock: the time that the engine records, and the time by which it expires and purges.

A wall clock jumps: a time server sets it, a machine wakes up, a battery is dead. The clock that counts from
boot does not. While the two disagree, the true time is somewhere between them. So the engine records the
later one and expires by the earlier one, and nothing ends before its time.

    trusted ── they disagree by more than the tolerance ──► in doubt ── they agree for long enough ──► trusted

In doubt, nothing is purged, expires or is reset, and no claim is dropped.

Some jumps cannot be detected. Between two readings a clock may change back and forth: a long gap between
two readings of a process does not count as agreement, a short one does. The gap between two processes counts,
since otherwise short-lived programs would never trust the clock again. How long the machine was off is known
from the wall clock only.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from turnledger.engine.ports import Clock, WholeStore
from turnledger.engine.tables.maintenance import ClockMark


class SystemClock:
    """Wall time and monotonic time of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def boot_time(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK) if _BOOT_CLOCK is not None else time.monotonic()

    def boot_id(self) -> str:
        return _BOOT_ID


def _find_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)
_BOOT_ID = _find_boot_id()  # on import: an event loop must not read files


log = logging.getLogger("turnledger")

NOISE_MS = 50.0
"""The two clocks cannot be read at the same moment."""


class TrustedClock:
    """Checks the wall clock against the clock that counts from boot; decides whether time may end
    anything."""

    def __init__(self, clock: Clock, tolerance: float, agreement: float, unseen: float) -> None:
        """`unseen`: the gap in seconds between two readings above which it does not count as agreement."""
        self._clock = clock
        self._unseen = round(unseen * 1000)
        self._tolerance = round(tolerance * 1000)
        self._agreement = round(agreement * 1000)
        self._boot = self._boot_ms()
        wall = clock.now_ms()
        self._wall = -1  # not looked at yet
        self._offset = wall - self._boot
        self._since = self._boot - self._agreement
        self._line = self._stamp = float(wall)
        self._due = wall
        self._trusted_at = 0
        self._is_trusted = True

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def boot_time(self) -> float:
        return self._clock.boot_time()

    def boot_id(self) -> str:
        return self._clock.boot_id()

    def now_ms(self) -> int:
        """Return the time to record: in doubt the later one, so that nothing ends too early. Goes back only
        when a jump of the wall clock ends."""
        self._look()
        return int(self._stamp)

    def due_ms(self) -> int:
        """Return the time that has certainly come: anything due later does not end yet."""
        self._look()
        return self._due

    def times(self) -> tuple[int, int]:
        """Return `now_ms` and `due_ms` of one look at the clocks."""
        self._look()
        return int(self._stamp), self._due

    @property
    def is_trusted(self) -> bool:
        """Whether time may currently end anything."""
        self._look()
        return self._is_trusted

    def _boot_ms(self) -> int:
        return round(self._clock.boot_time() * 1000)

    def _look(self) -> None:
        clock = self._clock
        wall, boot = clock.now_ms(), round(clock.boot_time() * 1000)
        if wall == self._wall and boot == self._boot:  # a turn looks several times within a millisecond
            return
        passed, self._boot, self._wall = max(boot - self._boot, 0), boot, wall
        self._line += passed
        self._stamp += passed / 2
        if passed > self._unseen and not self._is_trusted:
            self._since += passed
        if abs(wall - boot - self._offset) > self._tolerance:
            self._doubt(wall, boot)
        elif not self._is_trusted and boot - self._since >= self._agreement:
            self._trust(wall)
        if self._is_trusted:
            self._follow(wall, passed)
            self._due, self._trusted_at = int(min(wall, self._line)), wall
        self._stamp = max(wall, self._line, self._stamp)

    def _doubt(self, wall: int, boot: int) -> None:
        if self._is_trusted:
            log.warning(
                "the wall clock jumped by %.0f s: nothing is purged, expires or is reset for %.0f s",
                (wall - boot - self._offset) / 1000,
                self._agreement / 1000,
            )
        self._is_trusted = False
        self._offset, self._since = wall - boot, boot
        self._stamp = self._line  # a clock that ran ahead must not hold time up

    def _trust(self, wall: int) -> None:
        log.info("the wall clock is trusted again")
        self._is_trusted = True
        self._line = self._stamp = wall
        self._offset = wall - self._boot

    def _follow(self, wall: int, passed: int) -> None:
        """Approach a wall clock that was set by less than the tolerance, by half a second per second."""
        gap = wall - self._line
        if abs(gap) > NOISE_MS:
            gap = max(-passed / 2, min(gap, passed / 2))
        self._line += gap

    def compare(self, mark: ClockMark | None, newest: int | None) -> None:
        """Check the wall clock against the store when a process starts: against the mark of another process
        since boot, else the last time at which a clock was trusted, else the newest stored time."""
        wall, boot = self._clock.now_ms(), self._boot_ms()
        self._line = self._stamp = float(wall)
        self._boot, self._wall = boot, -1
        self._trusted_at = mark.trusted_at if mark is not None else 0
        # With a mark, ignore the newest time: it may have been recorded in doubt, before a restart.
        expected = mark.trusted_at if mark is not None and mark.trusted_at else newest
        if mark is not None and mark.boot and mark.boot == self._clock.boot_id():
            expected = mark.boot_at + boot
            self._since = mark.since
            self._is_trusted = boot - mark.since >= self._agreement
            self._line = float(expected)  # the wall clock may have been set since
        if expected is not None:
            self._offset = expected - boot
            if abs(wall - expected) > self._tolerance:
                self._doubt(wall, boot)
        if self._is_trusted:
            self._due = int(min(wall, self._line))
        else:
            known = [time for time in (newest, expected) if time is not None]
            self._line = self._stamp = float(max(wall, *known))
            # The newest time may have been recorded in doubt, too.
            self._due = min(wall, *known, *([mark.trusted_at] if mark is not None else []))

    def mark(self) -> ClockMark:
        self._look()
        return ClockMark(self._clock.boot_id(), self._offset, self._since, self._trusted_at)


async def read_clock_marks(whole: WholeStore, _: None) -> tuple[ClockMark | None, int | None]:
    mark, newest = await whole.clock_mark(), await whole.newest_time()
    times = [time for time in (newest, mark.trusted_at if mark else None) if time]
    return mark, max(times, default=None)


async def save_mark(whole: WholeStore, mark: ClockMark) -> None:
    await whole.save_clock_mark(mark)
