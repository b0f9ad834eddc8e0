"""The simulator catches every deliberately broken engine."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BROKEN, engine_broken_by
from tests.simulation.broken.caught import BEHIND_A_HEAD, CAUGHT, RARE
from turnledger.testing.simulation import Violation, simulate

ENOUGH = 3_000
"""Schedules within which a broken engine must be caught; the true one passes all of them."""
SOME = 40
"""Schedules in which a second net has to hold."""
EDITING = ("wander",)
"""Clients that edit a lot."""
ON_SQLITE = ("leaves_tickets_behind_when_the_pointer_moves", "removes_turns_that_a_fork_still_needs")
"""Engines without an operation that the rows of each store do in their own way."""
TASTES = {
    "copies_effects_onto_a_running_side_branch": ("parallel",),
    "ends_only_the_shown_turn_of_a_deleted_chat": ("parallel",),
    "expires_beside_a_parallel_turn": ("lapse", "parallel"),
}
"""Features that show a mistake, where few schedules have them."""


@pytest.mark.parametrize("name", sorted(BROKEN.keys() - RARE))
def test_broken_engine_is_caught_by_the_simulator(name: str) -> None:
    with engine_broken_by(name):
        caught = _caught(name)
    assert caught
    # A broken engine that trips over itself proves nothing about the promises.
    assert "a task failed" not in caught[0]


@pytest.mark.parametrize("name", ON_SQLITE)
def test_broken_engine_operation_of_a_store_is_caught_on_sqlite(name: str) -> None:
    with engine_broken_by(name):
        assert _caught(name, "sqlite")


def test_commit_without_the_fence_still_lands_only_on_the_head_it_ran_on() -> None:
    """Without the fence, a commit still lands only on the head it ran on."""
    with engine_broken_by("commits_without_the_fence"):
        broken = [what for seed in range(SOME) for what in violations(seed)]
    assert any("wrote while" in what for what in broken)
    assert not any("chain" in what or "ran on" in what for what in broken)


def test_edit_without_the_fence_still_commits_only_on_the_head_it_began_on() -> None:
    """Without the fence, an edit still commits only while its lane has the head it began on."""
    with engine_broken_by("commits_an_edit_without_fence_and_head"):
        seeds = (BEHIND_A_HEAD, *range(ENOUGH))
        seed = next(
            seed
            for seed in seeds
            if any("behind a head" in what for what in violations(seed, tastes=EDITING))
        )
    with engine_broken_by("commits_an_edit_without_the_fence"):
        broken = [
            *violations(seed, tastes=EDITING),
            *(what for tried in range(SOME) for what in violations(tried)),
        ]
        caught = CAUGHT.get(("memory", "commits_an_edit_without_the_fence"), 0)
        later = (what for tried in (caught, *range(SOME, ENOUGH)) for what in violations(tried))
        while not any("wrote while" in what for what in broken):
            broken.append(next(later))
    assert not any("behind a head" in what or "chain" in what or "ran on" in what for what in broken)


def _caught(name: str, store: str = "memory") -> tuple[str, ...]:
    """Return the violations of the first schedule that catches the engine; try the last such one first."""
    seeds = (CAUGHT.get((store, name), 0), *range(ENOUGH))
    tastes = TASTES.get(name, ())
    return next((broken for seed in seeds if (broken := violations(seed, store, tastes))), ())


def violations(seed: int, store: str = "memory", tastes: tuple[str, ...] = ()) -> tuple[str, ...]:
    try:
        simulate(seed, store, tastes)
    except Violation as violation:
        return (violation.what, *violation.others)
    return ()
