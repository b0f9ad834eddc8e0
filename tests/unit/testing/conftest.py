"""What all tests of the kit share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """So that what would warn does so in the test that left it."""
    yield
    gc.collect()
