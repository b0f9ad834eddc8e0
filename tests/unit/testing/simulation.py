"""A simulated loop that is closed at the end, and code that must not run."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from turnledger.testing.simulated_loop import SimulatedLoop


@contextlib.contextmanager
def simulation(seed: int | random.Random = 0, **options: Any) -> Iterator[SimulatedLoop]:
    """Close the loop at the end and collect garbage, so that warnings become errors here."""
    loop = SimulatedLoop(seed, **options)
    try:
        yield loop
    finally:
        loop.close()
        gc.collect()


def run(seed: int, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine on its own loop; no task may fail unnoticed."""
    loop = SimulatedLoop(seed)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()
        assert loop.errors == []


def forbidden() -> None:
    raise AssertionError("code of a dead process ran")
