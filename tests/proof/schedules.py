"""The engine keeps its promises in all schedules of a long range, on memory and on SQLite.

`make test` runs the first of them; this runs eighty times as many, and replays thirty times as many.
"""

from __future__ import annotations

import multiprocessing
import os

from tests.simulation.test_schedules import RARE_SCENES, SQLITE_FIRST, check_replays
from turnledger.testing.simulation import simulate

SECONDS = 2_400
MEMORY, SQLITE, CHUNK = 10_000, 2_000, 50
RARE_SHARE = 10
"""One chunk in so many runs again with the scenes that are never drawn."""


def prove() -> None:
    chunks: list[tuple[str, int, tuple[str, ...]]] = [
        (store, first, ())
        for store, first_of_all, most in (("memory", 0, MEMORY), ("sqlite", SQLITE_FIRST, SQLITE))
        for first in range(first_of_all, first_of_all + most, CHUNK)
    ]
    chunks += [(store, first, RARE_SCENES) for store, first, _ in chunks[::RARE_SHARE]]
    check_replays({"memory": 300, "sqlite": 100})
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        turns = sum(pool.imap_unordered(turns_of, chunks))
    print(f"{len(chunks) * CHUNK} schedules on memory and SQLite, {turns} turns committed, no promise broken")


def turns_of(chunk: tuple[str, int, tuple[str, ...]]) -> int:
    store, first, features = chunk
    return sum(simulate(seed, store, features).turns for seed in range(first, first + CHUNK))
