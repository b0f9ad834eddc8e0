"""A process that copies a store in small pages, and may kill itself:
`python -m tests.crash.killed_copy FROM TO PAGE_BYTES MOMENT [BROKEN]`.

Each page has three moments: before its transaction, within it, and after it. The process kills itself at the
one with this number; 0 for none. Then it prints the report. BROKEN names a copy that must lose or double
records.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from turnledger.engine.tables.records import CopyProgress, StoreRecord
from turnledger.engine.transfer import store_copy
from turnledger.engine.transfer.store_copy import StoreCopyReport, copy_store
from turnledger.stores.postgresql import copies as of_postgresql
from turnledger.stores.sqlite import copies as of_sqlite
from turnledger.stores.url import open_source, open_target

LEASE_TIME = 0.05


class Silence:
    """Follows a copy, and says nothing."""

    def wait(self, place: str, processes: int, seconds: float) -> None: ...
    def begin(self, stage: str, total: int, done: int) -> None: ...
    def advance(self, records: int) -> None: ...
    def end(self, table: str, records: int) -> None: ...


class Steps(Silence):
    """Prints a line at each step."""

    def begin(self, stage: str, total: int, done: int) -> None:
        print(stage, flush=True)

    def advance(self, records: int) -> None:
        print(records, flush=True)


class KilledTarget:
    """Wraps a target, and ends the process at a moment."""

    def __init__(self, target: Any, moment: int, broken: str) -> None:
        self._target = target
        self._left = moment
        self._broken = broken
        if broken != "apart":
            advance = target._advance
            target._advance = (
                self._advancing_in_a_task if asyncio.iscoroutinefunction(advance) else self._advancing
            )
            self._advance = advance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def pass_moment(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _advancing(self, old: CopyProgress, new: CopyProgress) -> None:
        self._advance(old, new)
        self.pass_moment()

    async def _advancing_in_a_task(self, old: CopyProgress, new: CopyProgress) -> None:
        await self._advance(old, new)
        self.pass_moment()

    async def write(
        self, table: str, records: Sequence[StoreRecord], old: CopyProgress, new: CopyProgress
    ) -> None:
        self.pass_moment()
        if self._broken == "apart":
            await self._target.write(table, [], old, new)  # the progress alone
            self.pass_moment()
            await self._target.write(table, records, new, new)
        else:
            await self._target.write(table, records, old, new)
        self.pass_moment()


async def copy(
    source_url: str,
    target_url: str,
    page_bytes: int,
    moment: int = 0,
    broken: str = "",
    observer: Silence = Silence(),  # noqa: B008 - it has no state
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> StoreCopyReport:
    store_copy.PAGE_BYTES = page_bytes
    of_postgresql.PAGE_ROWS = max(1, page_bytes // of_sqlite.RECORD_BYTES)
    source, target = await open_source(source_url), await open_target(target_url)
    try:
        killed: Any = KilledTarget(target, moment, broken) if moment else target
        return await copy_store(source, killed, observer, lease_time=LEASE_TIME, sleep=sleep)
    finally:
        await source.close()
        await target.close()


if __name__ == "__main__":
    source, target, page, moment, *broken = sys.argv[1:]
    report = asyncio.run(copy(source, target, int(page), int(moment), *broken, observer=Steps()))
    print(msgspec.json.encode(report).decode(), flush=True)
