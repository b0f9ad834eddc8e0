"""The simulator can fail: every engine that is broken on purpose is caught."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BROKEN, engine_broken_by
from turnledger.testing.simulation import Violation, simulate

ENOUGH = 3_000
"""Schedules within which a broken engine must be caught; the true one passes all of them."""


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_is_caught(name: str) -> None:
    with engine_broken_by(name):
        caught = next((what for seed in range(ENOUGH) if (what := _what_broke(seed))), None)
    assert caught is not None
    # A broken engine that trips over itself proves nothing about the promises.
    assert "a task failed" not in caught


def test_the_head_is_a_second_net_under_the_fence() -> None:
    """Without the fence, a commit still lands only on the head it ran on."""
    with engine_broken_by("commits_without_the_fence"):
        broken = [what for seed in range(300) if (what := _what_broke(seed))]
    assert any("wrote while" in what for what in broken)
    assert not any("chain" in what or "ran on" in what for what in broken)


def _what_broke(seed: int) -> str:
    try:
        simulate(seed)
    except Violation as violation:
        return violation.what
    return ""
