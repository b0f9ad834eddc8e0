"""The production engine keeps its promises in seeded schedules, on memory and on SQLite."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from tests.simulation.broken import engine_broken_by
from turnledger.testing.simulation import Violation, simulate

MEMORY, SQLITE, CHUNK = 300, 60, 20
"""`python -m tests.proof schedules` runs thirty times as many."""


@pytest.mark.parametrize("first", range(0, MEMORY, CHUNK))
def test_memory(first: int) -> None:
    assert sum(simulate(seed, "memory").turns for seed in range(first, first + CHUNK)) >= CHUNK


@pytest.mark.parametrize("first", range(0, SQLITE, CHUNK))
def test_sqlite(first: int) -> None:
    # Seeds of its own: a schedule is the same on both stores until their answers differ.
    seeds = range(1_000_000 + first, 1_000_000 + first + CHUNK)
    assert sum(simulate(seed, "sqlite").turns for seed in seeds) >= CHUNK


@pytest.mark.parametrize(("store", "seeds"), [("memory", 10), ("sqlite", 5)])
def test_a_seed_replays_exactly(store: str, seeds: int) -> None:
    for seed in range(seeds):
        assert simulate(seed, store) == simulate(seed, store)


def test_a_seed_replays_exactly_in_another_process() -> None:
    """Nothing may hang on the order of a set: that differs from process to process."""
    told = "from turnledger.testing.simulation import simulate as run; print([*map(run, range(200, 230))])"
    reports = {
        subprocess.run(
            [sys.executable, "-c", told],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(reports) == 1


def test_a_broken_promise_names_its_seed_and_replays() -> None:
    with engine_broken_by("keeps_on_crash"):
        found = [_violation(seed) for seed in range(10)]
        again = [_violation(seed) for seed in range(10)]
    assert found == again
    seed = next(seed for seed, what in enumerate(found) if what is not None)
    assert f"seed {seed} on memory" in str(found[seed])


def test_broken_promise_arrives_from_another_process() -> None:
    sent = Violation(7, "memory", "what", "another")
    arrived = pickle.loads(pickle.dumps(sent))
    assert (str(arrived), arrived.others) == (str(sent), ("another",))


@pytest.mark.parametrize(("seed", "store"), [(7414, "memory"), (1204, "sqlite")])
def test_note_of_a_process_that_is_lost_with_the_power_breaks_no_promise(seed: int, store: str) -> None:
    simulate(seed, store)  # it writes a mark of the clock, or makes words findable, while a client asks


def _violation(seed: int) -> str | None:
    try:
        simulate(seed)
    except Violation as violation:
        return str(violation)
    return None
