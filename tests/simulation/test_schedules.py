"""The production engine breaks no promise in seeded schedules on memory and SQLite."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from tests.simulation.broken import engine_broken_by
from turnledger.testing.simulation import Violation, simulate
from turnledger.testing.simulation.schedule import ON_REQUEST

MEMORY, SQLITE, CHUNK = 60, 15, 20
SQLITE_FIRST = 1_000_000
"""Seeds of its own: a schedule is the same on both stores until their answers differ."""
SCHEDULES = [
    *(("memory", range(first, first + CHUNK)) for first in range(0, MEMORY, CHUNK)),
    *(("sqlite", range(first, first + 5)) for first in range(SQLITE_FIRST, SQLITE_FIRST + SQLITE, 5)),
]
"""`python -m tests.proof schedules` runs more than 150 times as many."""
RARE_SCENES = (*(each for each in ON_REQUEST if each != "fail over"), "work", "listen", "resend")
"""The features that are never drawn on every store, and those that they need."""


@pytest.mark.parametrize(("store", "seeds"), SCHEDULES)
def test_seeded_schedules_break_no_promise(store: str, seeds: range) -> None:
    assert sum(simulate(seed, store).turns for seed in seeds) >= len(seeds)


@pytest.mark.parametrize(("store", "seeds"), [("memory", range(10)), ("sqlite", range(3))])
def test_schedules_of_rare_scenes_break_no_promise(store: str, seeds: range) -> None:
    assert sum(simulate(seed, store, RARE_SCENES).turns for seed in seeds) >= len(seeds)


def test_failovers_that_lose_begins_break_no_promise() -> None:
    assert sum(simulate(seed, "memory", ("fail over",)).turns for seed in range(20)) >= 20


@pytest.mark.parametrize(
    ("seed", "others"),
    [(532, ()), (785, ()), (1436, ()), (462, ("flag", "wander", "parallel", "leave", "clock"))],
    ids=["a flag that hid nothing", "a stop that is obeyed", "the first clock mark", "the sign of a reader"],
)
def test_failover_that_loses_a_note_breaks_no_promise(seed: int, others: tuple[str, ...]) -> None:
    simulate(seed, "memory", ("fail over", *others))


def test_simulation_seed_replays_exactly_in_another_process() -> None:
    check_replays({"memory": 5, "sqlite": 2})


def check_replays(seeds: dict[str, int]) -> None:
    """Nothing may hang on the order of a set, which differs from process to process, nor on earlier runs."""
    runs = [(seed, store) for store, count in seeds.items() for seed in range(count)]
    script = f"from turnledger.testing.simulation import simulate; print([simulate(*run) for run in {runs}])"
    elsewhere = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert elsewhere.stdout == f"{[simulate(*run) for run in reversed(runs)][::-1]}\n"


def test_violation_names_its_seed_and_replays() -> None:
    with engine_broken_by("keeps_on_crash"):
        found = [_violation(seed) for seed in range(10)]
        again = [_violation(seed) for seed in range(10)]
    assert found == again
    seed = next(seed for seed, what in enumerate(found) if what is not None)
    assert f"seed {seed} on memory" in str(found[seed])


def test_violation_survives_pickling() -> None:
    sent = Violation(7, "memory", "what", "another")
    arrived = pickle.loads(pickle.dumps(sent))
    assert (str(arrived), arrived.others) == (str(sent), ("another",))


@pytest.mark.parametrize(("seed", "store"), [(7414, "memory"), (1204, "sqlite")])
def test_background_write_lost_with_the_power_breaks_no_promise(seed: int, store: str) -> None:
    simulate(seed, store)  # it writes a clock mark, or indexes words, during a request


def test_effects_after_a_parallel_turn_began_are_not_missed_when_its_begin_is_repeated() -> None:
    simulate(50653, "memory", ("append", "parallel"))


def _violation(seed: int) -> str | None:
    try:
        simulate(seed)
    except Violation as violation:
        return str(violation)
    return None
