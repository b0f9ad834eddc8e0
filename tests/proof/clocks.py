"""No jump of a wall clock, by half a second or by years, ends or forgets anything before its time.

Runs schedules of the simulator in which the wall clock jumps again and again, and conversations expire and
are reset for idleness, on both stores.
"""

from __future__ import annotations

import time

from turnledger.testing.simulation import simulate

SECONDS = 900
RUNS = 240.0
"""Seconds for which schedules are run on each store."""
TASTES = {"jumps": ("clock",), "lapses": ("lapse",), "both": ("clock", "lapse")}
FIRST = 10_000_000
"""Seeds that no test runs."""


def prove() -> None:
    for store in ("memory", "sqlite"):
        ends, seed, asks = time.monotonic() + RUNS, FIRST, 0
        while time.monotonic() < ends:
            for tastes in TASTES.values():
                asks += simulate(seed, store, tastes).requests
                seed += 1
        print(f"{store}: {seed - FIRST} schedules, {asks} requests, nothing ended before its time")
