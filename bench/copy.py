"""Copies of a store between SQLite and PostgreSQL: `python -m bench.copy`.

Prints turns per second, for the copy alone and with the comparison of both stores at the end, and the peak
memory of the copying process at two sizes. PostgreSQL and the copy share this machine. Each chat has ten
turns of some 1.5 kB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from turnledger import Ledger
from turnledger.engine.tables.records import TABLES, CopyProgress, StoreRecord
from turnledger.engine.transfer.store_copy import PAGE_BYTES, copy_store
from turnledger.stores.row_codec import row_checksum
from turnledger.stores.url import open_source, open_target
from turnledger.testing.postgresql import PostgresServer

TURNS = 100_000
CHAT = 10
"""Turns of a chat."""
QUESTION = "Where is my order? " * 10
ANSWER = "It left the warehouse this morning and should reach you by Thursday. " * 10


class Stages:
    """Notes when a copy begins its stages."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}

    def wait(self, place: str, processes: int, seconds: float) -> None: ...
    def begin(self, stage: str, total: int, done: int) -> None:
        self.began[stage] = time.perf_counter()

    def advance(self, records: int) -> None: ...
    def end(self, table: str, records: int) -> None: ...


async def fill(url: str, turns: int) -> None:
    """Make a store of this many turns: copies of one real chat, each with ids of its own."""
    with tempfile.TemporaryDirectory() as folder:
        model = f"sqlite:///{folder}/model.db"
        async with await Ledger.open(model) as ledger:
            chat = await ledger.conversation()
            for _ in range(CHAT):
                async with chat.turn(QUESTION) as turn:
                    turn.emit(ANSWER)
        source, target = await open_source(model), await open_target(url)
        records = {table: (await source.read(table, None, PAGE_BYTES)).records for table in TABLES}
        progress = CopyProgress(await source.state(), "owner")
        assert await target.begin(progress)
        await target.write("owner", [_counted(records["owner"][0], turns // CHAT)], progress, progress)
        ids = {row[0] for table in ("conversation", "branch", "turn") for row in records[table]}
        for first in range(0, turns // CHAT, 100):
            copies = range(first, min(first + 100, turns // CHAT))
            for table in ("conversation", "branch", "turn"):
                clones = [_clone(table, row, ids, n) for n in copies for row in records[table]]
                await target.write(table, clones, progress, progress)
        await target.finish(progress)
        await source.close()
        await target.close()


def _counted(owner: StoreRecord, chats: int) -> StoreRecord:
    name, flags, admission, stored, _ = owner
    return name, flags, admission, stored * chats, chats


def _clone(table: str, row: StoreRecord, ids: set[bytes], number: int) -> StoreRecord:
    """Return a record with its ids of a later time, and the checksum that fits them."""
    clone = [_later(value, number) if value in ids else value for value in row]
    if table == "turn":
        id, _, branch, place, parent, kind, created_at, committed_at, body, log, _ = clone
        fixed = (id, place, kind, created_at, committed_at, branch + (parent or b""))
        clone[-1] = row_checksum(*fixed, body, log or b"")
    return tuple(clone)


def _later(id: bytes, seconds: int) -> bytes:
    return (int.from_bytes(id[:6]) + seconds * 1000).to_bytes(6) + id[6:]


async def run(source_url: str, target_url: str) -> dict[str, Any]:
    source, target = await open_source(source_url), await open_target(target_url)
    stages = Stages()
    report = await copy_store(source, target, stages, lease_time=0)
    ended = time.perf_counter()
    await source.close()
    await target.close()
    return {
        "turns": report.records["turn"],
        "copy": stages.began["Comparing"] - stages.began["Copying"],
        "all": ended - stages.began["Copying"],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.copy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the turns, to see that it runs")
    parser.add_argument("--turns", type=int, default=TURNS, help="of the large store; the small has a tenth")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    parser.add_argument("--run", nargs=2, metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(asyncio.run(run(*options.run))))
        return
    turns = options.turns // 100 if options.quick else options.turns
    print(f"{'':24} {'turns':>8} {'turns/s':>9} {'compared, too':>14} {'peak MB':>8} {'load':>6}")
    with PostgresServer.start(18, {}) as server, tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for size in (turns // 10, turns):
            file = f"sqlite:///{Path(folder).resolve()}/{size}.db"
            asyncio.run(fill(file, size))
            database = server.create_database()
            for source, target in (
                (file, database),
                (database, f"{file}.copy"),
                (file, f"{file}.other"),
                (database, server.create_database()),
            ):
                command = [sys.executable, "-m", "bench.copy", "--run", source, target]
                done = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                name = " to ".join(url.partition(":")[0] for url in (source, target))
                print(
                    f"{name:24} {done['turns']:8} {done['turns'] / done['copy']:9.0f} "
                    f"{done['turns'] / done['all']:14.0f} {done['peak']:8.0f} {os.getloadavg()[0]:6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
