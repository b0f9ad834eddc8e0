"""The wall clock of the simulated machine, which jumps for a moment, by half a second or by years."""

from __future__ import annotations

import asyncio
from random import Random

from turnledger.testing.simulated_loop import SimulatedLoop

START_MS = 1_700_000_000_000
WITHIN_TOLERANCE = (0.5, 7.0)
BEYOND = (120.0, 7_200.0, 2 * 86_400.0, 40 * 86_400.0, 3_650 * 86_400.0)
"""Seconds by which it jumps, either way."""
WRONG_FOR = (0.1, 0.5, 5.0, 20.0, 40.0)
"""Seconds for which it stays wrong: too short for processes to trust it."""


class WallClock:
    """Shared by all processes of the machine; each adds its skew."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._offset = 0.0

    def now_ms(self) -> int:
        return START_MS + int((self._loop.time() + self._offset) * 1000)

    async def jump_repeatedly(self, random: Random) -> None:
        """Jump until cancelled, then be right. Each large jump happens once: a paused process would take two
        equal jumps for a stable clock."""
        large = [way * by for by in BEYOND for way in (-1, 1)]
        small = [way * by for by in WITHIN_TOLERANCE for way in (-1, 1)]
        random.shuffle(large)
        try:
            while True:
                await asyncio.sleep(random.choice((0.2, 2.0, 15.0)) * random.random())
                self._offset = large.pop() if large and random.random() < 0.7 else random.choice(small)
                await asyncio.sleep(random.choice(WRONG_FOR))
                self._offset = 0.0
        finally:
            self._offset = 0.0


class SimulatedClock:
    """The clocks of one process, with its own skew."""

    def __init__(self, loop: SimulatedLoop, wall: WallClock, skew_ms: int) -> None:
        self._loop = loop
        self._wall = wall
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._wall.now_ms() + self._skew_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def boot_time(self) -> float:
        return self._loop.time()

    def boot_id(self) -> str:
        return "the simulated machine"
