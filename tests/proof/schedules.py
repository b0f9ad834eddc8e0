"""The engine keeps its promises in all schedules of a long range, on memory and on SQLite.

`make test` runs the first of them; this runs thirty times as many.
"""

from __future__ import annotations

import multiprocessing
import os

from turnledger.testing.simulation import simulate

SECONDS = 2_400
MEMORY, SQLITE, CHUNK = 10_000, 2_000, 50


def prove() -> None:
    chunks = [
        (store, first)
        for store, most in (("memory", MEMORY), ("sqlite", SQLITE))
        for first in range(0, most, CHUNK)
    ]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        turns = sum(pool.imap_unordered(turns_of, chunks))
    print(f"{MEMORY} schedules on memory, {SQLITE} on SQLite, {turns} turns committed, no promise broken")


def turns_of(chunk: tuple[str, int]) -> int:
    store, first = chunk
    return sum(simulate(seed, store).turns for seed in range(first, first + CHUNK))
