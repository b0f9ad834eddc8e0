"""kill -9 of processes that share a store: `python -m tests.crash.killed_processes --kills 100 --seed 7`.

Three processes run turns with tools. Each is killed repeatedly, at moments chosen by the seed, and restarted.
Acknowledged turns exist, effects are recorded once, and every lane is free.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.crash.processes import Worker
from tests.crash.promises import check_promises, recovered

SLOTS = 3
MOMENTS = ("acked", "begun", "acted")
LAST_WORDS = ("acked", "failed", "stopped", "refused")
LEASE_TIME = 1.2


class ProcessStorm:
    """Kills on one folder with one seed, then the checks."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._dice = Random(seed)
        self._firsts, self._lives = [0] * SLOTS, [0] * SLOTS
        self._workers: list[Worker] = []
        self.output: list[str] = []

    def run(self, kills: int) -> None:
        """Raise AssertionError for a broken promise."""
        try:
            self._workers = [self._begin(slot) for slot in range(SLOTS)]
            for _ in range(kills):
                slot = self._dice.randrange(SLOTS)
                self._kill(slot, self._dice.choice(MOMENTS))
                self._workers[slot] = self._begin(slot)
            for slot in range(SLOTS):
                self._kill(slot, "acked")
        finally:
            for worker in self._workers:
                worker.process.kill()
        check_promises(asyncio.run(recovered(self._folder)), self.output, self._folder / "effects")

    def _begin(self, slot: int) -> Worker:
        arguments = (self._seed, slot, self._firsts[slot], self._lives[slot])
        errors = self._folder / f"errors-{slot}-{self._lives[slot]}"
        return Worker(errors, "loop", str(self._folder), str(LEASE_TIME), *map(str, arguments))

    def _kill(self, slot: int, moment: str) -> None:
        worker = self._workers[slot]
        worker.wait_for(moment, self._dice.randint(1, 9))
        worker.kill()
        self.output += worker.output
        # The next process begins with the unfinished request; a keyed one is then a retry.
        self._firsts[slot] += sum(line.split()[0] in LAST_WORDS for line in worker.output)
        self._lives[slot] += 1


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.killed_processes", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        storm = ProcessStorm(Path(folder), given.seed)
        storm.run(given.kills)
    acknowledged = sum(line.startswith("acked") for line in storm.output)
    print(f"{given.kills + SLOTS} kills: {acknowledged} turns were acknowledged. All promises were kept.")


if __name__ == "__main__":
    main()
