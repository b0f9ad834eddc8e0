"""The simulator can fail: every engine that is broken on purpose is caught."""

from __future__ import annotations

import pytest

from tests.simulation.broken_engines import BROKEN, engine_broken_by
from turnledger.testing.simulation import Violation, simulate

ENOUGH = 3_000
"""Schedules within which a broken engine must be caught; the true one passes all of them."""


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_is_caught(name: str) -> None:
    with engine_broken_by(name):
        caught = next((seed for seed in range(ENOUGH) if _breaks_a_promise(seed)), None)
    assert caught is not None


def _breaks_a_promise(seed: int) -> bool:
    try:
        simulate(seed)
    except Violation:
        return True
    return False
