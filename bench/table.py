"""Tables of the measures: values with their targets, and the command line that prints one."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import uvloop


@dataclass(frozen=True)
class Line:
    """A value, usually a ratio, and its target; without one, it is only shown."""

    name: str
    value: float
    target: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target

    def __str__(self) -> str:
        shown = f"{self.name:74} {self.value:7.2f}"
        if self.target is None:
            return shown
        bound = f"{'≥' if self.at_least else '≤'} {self.target:g}"
        return f"{shown}   {bound:6} {'holds' if self.holds else 'MISSED'}"


async def alternate(rounds: int, *works: Callable[[], Awaitable[object]]) -> list[float]:
    """Run these one after the other, so many times; return the median seconds of each. Noise affects all
    alike."""
    took: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, times in zip(works, took, strict=True):
            started = time.perf_counter()
            await work()
            times.append(time.perf_counter() - started)
    return list(map(median, took))


Measure = Callable[..., Coroutine[Any, Any, Iterable[Line]]]
"""Called with a folder and `quick`."""


def show(
    module: str,
    meaning: str | None,
    measure: Measure,
    run: Callable[[Coroutine[Any, Any, Iterable[Line]]], Iterable[Line]] = uvloop.run,
) -> None:
    """Measure with the options of the command line in a temporary folder, and print the table."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=meaning)
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(f"{'measure':74} {'ratio':>7}   target")
        print(*run(measure(Path(folder).resolve(), quick=options.quick)), sep="\n")
