"""What all tests of the simulator share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def earlier_objects_are_frozen() -> None:
    """So that the collection after each simulated death passes by what other tests have left."""
    gc.collect()
    gc.freeze()
