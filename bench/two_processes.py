"""Shared by the measures between two processes: one command, which also runs the other process."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from statistics import quantiles
from typing import Any

from turnledger import Limits

WITHOUT_TIMERS = Limits(lease_time=10_000.0)
"""Only the notice of the other's write can end a wait."""

Half = Callable[[Path, int], Coroutine[Any, Any, None]]
Measure = Callable[[Path, int], Coroutine[Any, Any, tuple[list[float], list[float]]]]


def other_half(module: str, path: Path, rounds: int) -> list[str]:
    """Return the interpreter's arguments for the other process."""
    return ["-m", module, "--other-half", str(path), "--rounds", str(rounds)]


def run(module: str, what: str, other: Half, measure: Measure, title: str, names: tuple[str, str]) -> None:
    """Run one half, by the arguments, and print two sets of times, in milliseconds."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=what)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    parser.add_argument("--other-half", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.other_half is not None:
        asyncio.run(other(options.other_half, options.rounds))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        taken = asyncio.run(measure(Path(folder).resolve(), options.rounds))
    print(f"{title:44} {'p50':>7} {'p99':>7}")
    for name, times in zip(names, taken, strict=True):
        cuts = quantiles(times, n=100, method="inclusive")
        print(f"{name:44} {1000 * cuts[49]:7.1f} {1000 * cuts[98]:7.1f}")
