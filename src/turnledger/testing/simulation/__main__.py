"""Run schedules by command: `python -m turnledger.testing.simulation --seeds 0:5000 --store sqlite`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from turnledger.testing.simulation.oracle.checker import Violation
from turnledger.testing.simulation.schedule import ScheduleReport, simulate

CHUNK = 50


def main() -> int:
    """Run the schedules, print each broken promise with its seed, and return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m turnledger.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:5000", help="first:last+1, or one seed (default 0:5000)")
    parser.add_argument("--store", default="memory", choices=("memory", "sqlite"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    reports: list[ScheduleReport] = []
    problems: list[str] = []
    with ProcessPoolExecutor(options.workers) as pool:
        for done in pool.map(_run, chunks, [options.store] * len(chunks)):
            reports += [each for each in done if isinstance(each, ScheduleReport)]
            problems += [each for each in done if isinstance(each, str)]
    for problem in problems:
        print(problem)
    print(
        f"{len(seeds)} schedules on {options.store}: {sum(each.requests for each in reports)} requests, "
        f"{sum(each.turns for each in reports)} turns, {sum(each.crashes for each in reports)} crashes, "
        f"{len(problems)} broken promises"
    )
    return 1 if problems else 0


def _run(seeds: range, store: str) -> list[ScheduleReport | str]:
    return list(_outcomes(seeds, store))


def _outcomes(seeds: range, store: str) -> Iterator[ScheduleReport | str]:
    for seed in seeds:
        try:
            yield simulate(seed, store)
        except Violation as violation:
            yield str(violation)


if __name__ == "__main__":
    sys.exit(main())
