"""Copies between stores, killed 50 times each at random moments and resumed: equal, record by record.

The source has rows of every kind, and a turn that ran when its process was killed.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.crash.all_rows import all_rows
from tests.crash.test_copies import PAIRS, Stocked, findings, stocked_store
from tests.fork_server import ForkedProcess
from turnledger.testing.postgresql import PostgresServer

SECONDS = 900
KILLS = 50
PAGE_BYTES = 2_000
MOST_STEPS = 40
"""Pages, or stages, that a process passes at most before it is killed."""
REPORT = "was_complete"
"""In the last line of a process that has finished."""
LONGEST_LIFE = 0.01
"""Seconds after its last step that a process lives at most."""


def prove() -> None:
    dice = random.Random(25)
    with PostgresServer.start() as server, tempfile.TemporaryDirectory() as folder:
        numbers = count(1)

        def new_store(kind: str) -> str:
            file = f"sqlite:///{Path(folder).resolve()}/{next(numbers)}.db"
            return server.create_database() if kind == "postgresql" else file

        stocked = {kind: stock(new_store(kind)) for kind in ("sqlite", "postgresql")}
        for source, target in PAIRS:
            kills, copies = 0, 0
            while kills < KILLS:
                kills += copy_with_kills(stocked[source], new_store(target), KILLS - kills, dice)
                copies += 1
            assert copies > 1, "all kills came before the comparison"
            print(f"{source} to {target}: {kills} kills, {copies} copies, all equal", flush=True)


def stock(url: str) -> Stocked:
    return stocked_store(url, ForkedProcess("tests.crash.stocked_store", url))


def copy_with_kills(source: Stocked, url: str, most: int, dice: random.Random) -> int:
    """Copy to the end; return how many processes were killed on the way."""
    kills = 0
    while True:
        arguments = (source.url, url, str(PAGE_BYTES), "0")
        with ForkedProcess("tests.crash.killed_copy", *arguments) as process:
            printed = ""
            if kills < most:
                for _ in range(dice.randrange(MOST_STEPS + 1)):
                    printed += process.stdout.readline()
                time.sleep(dice.random() * LONGEST_LIFE)
                process.kill()
            out, errors = process.communicate(60)
        if REPORT in printed + out:  # it was about to exit
            break
        assert process.returncode == -signal.SIGKILL, errors
        kills += 1
    assert asyncio.run(all_rows(url)) == source.rows
    assert asyncio.run(findings(url)) == []
    return kills
