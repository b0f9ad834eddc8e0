"""What all tests share."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Have the collector pass by everything that is imported: the simulator collects after each of its
    deaths, and would walk over all modules of all tests each time."""
    gc.collect()
    gc.freeze()
