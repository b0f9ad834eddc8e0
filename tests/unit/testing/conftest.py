"""What all tests of the kit share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def earlier_objects_are_frozen() -> None:
    """So that the many collections of these tests pass by what others have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """So that what would warn does so in the test that left it."""
    yield
    gc.collect()
