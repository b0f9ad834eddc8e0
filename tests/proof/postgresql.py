"""Processes and servers on one PostgreSQL database lose, double and leak no turn, whatever breaks.

Processes with tools are killed under load, on 18 and 16. Then four servers are: 100 kills of servers and of
the database, between cut, reset, delayed and stalled connections and servers stopped past their lease.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.crash.killed_processes import ProcessStorm
from tests.crash.place import keep_in
from tests.crash.shared_database import SAFE, storm
from turnledger.testing.postgresql import PostgresServer

SECONDS = 3600
PROCESS_KILLS, KILLS = 60, 100


def prove() -> None:
    for version in (18, 16):
        with tempfile.TemporaryDirectory() as folder, PostgresServer.start(version, SAFE) as database:
            keep_in(Path(folder), f"{database.create_database()}&pool=8")
            processes = ProcessStorm(Path(folder), seed=version)
            processes.run(PROCESS_KILLS)
            acknowledged = sum(line.startswith("acked") for line in processes.output)
            print(
                f"PostgreSQL {version}: {PROCESS_KILLS} processes killed, {acknowledged} turns acknowledged"
            )
    print(storm(KILLS, seed=7).summary)


if __name__ == "__main__":
    prove()
