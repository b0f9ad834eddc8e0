"""Fixtures of the kit tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def earlier_objects_are_frozen() -> None:
    """Exclude objects of other tests from the many collections of these."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """Let warnings appear in the test that caused them."""
    yield
    gc.collect()
