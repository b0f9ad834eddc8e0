"""Fixtures of the simulator tests."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def earlier_objects_are_frozen() -> None:
    """Exclude objects of other tests from the collection after each simulated death."""
    gc.collect()
    gc.freeze()
