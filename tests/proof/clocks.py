"""No jump of a wall clock, by half a second or by years, ends or forgets anything before its time.

Runs simulator schedules with a jumping wall clock and conversations that expire or are reset, on both stores.
"""

from __future__ import annotations

import time

from turnledger.testing.simulation import simulate

SECONDS = 900
RUNS = 240.0
"""Seconds of schedules per store."""
FEATURES = {"jumps": ("clock",), "lapses": ("lapse",), "both": ("clock", "lapse")}
FIRST = 10_000_000
"""First seed, beyond those of tests."""


def prove() -> None:
    for store in ("memory", "sqlite"):
        ends, seed, requests = time.monotonic() + RUNS, FIRST, 0
        while time.monotonic() < ends:
            for features in FEATURES.values():
                requests += simulate(seed, store, features).requests
                seed += 1
        print(f"{store}: {seed - FIRST} schedules, {requests} requests, nothing ended before its time")
