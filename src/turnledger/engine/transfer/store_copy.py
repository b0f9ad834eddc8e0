"""Copy a whole store into another one, of the same kind or not: every record, and nothing twice.

The source is at rest, or refused. Records and progress are written together, so that a copy that was killed
continues behind its last page. At the end both stores are read anew and compared, record by record.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from turnledger.engine.tables.records import (
    TABLES,
    CopyProgress,
    RecordPage,
    RecordSource,
    RecordTarget,
    StoreState,
)
from turnledger.errors import InvalidInput, StoreCorrupt, StoreUnavailable

PAGE_BYTES = 2 * 1024 * 1024
"""Of the records that are written in one transaction; a second page is read meanwhile."""

First = TypeVar("First")
Second = TypeVar("Second")


class CopyObserver(Protocol):
    """Follows a copy."""

    def wait(self, place: str, processes: int, seconds: float) -> None:
        """A store has processes that may be alive; watch them for a time."""

    def begin(self, stage: str, total: int, done: int) -> None:
        """Begin to copy, or to compare, so many records."""

    def advance(self, records: int) -> None: ...
    def end(self, table: str, records: int) -> None:
        """A table is complete."""


class StoreCopyReport(Struct, frozen=True):
    records: dict[str, int]
    """How many records each table has."""
    was_complete: bool
    """Whether an earlier run had copied everything: nothing changed."""


class Content(Struct, frozen=True):
    """What a table contains: equal for the same records in any order."""

    count: int
    digest: int


async def copy_store(
    source: RecordSource,
    target: RecordTarget,
    observer: CopyObserver,
    *,
    lease_time: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> StoreCopyReport:
    """Copy all records of the source, or continue an unfinished copy of it, and compare both stores.

    Raises StoreUnavailable if a process uses one of them; InvalidInput if the target has other records, if
    the source was used since the copy began, or one of them since it ended; and StoreCorrupt if they differ.
    """
    progress = await target.progress()
    is_complete = progress is not None and progress.target is not None
    await _check_at_rest(source, observer, lease_time, sleep)
    state = await source.state()
    written = await target.snapshot()
    try:
        if progress is None or is_complete:  # servers refuse an unfinished copy
            await _check_at_rest(written, observer, lease_time, sleep)
        _check_states(state, await written.state(), progress, source.place, target.place)
    finally:
        await written.close()
    if progress is None:
        progress = CopyProgress(state, next(iter(TABLES)))
        if not await target.begin(progress):
            raise InvalidInput(f"{target.place} is not empty. Copy into a new file or database.")
    if not is_complete:
        progress = await _copy(source, target, progress, observer)
        await source.renew()  # to find changes made during the copy
    records = await _compare(source, target, observer)
    if not is_complete:
        await target.finish(progress)
    return StoreCopyReport(records, was_complete=is_complete)


async def _check_at_rest(
    store: RecordSource,
    observer: CopyObserver,
    lease_time: float,
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Raise StoreUnavailable if a process uses the store. One without a sign of life for the time of a lease
    has died."""
    before = await store.holders()
    living = before.living
    if before.unknown and not living:
        observer.wait(store.place, len(before.unknown), lease_time)
        await sleep(lease_time)
        await store.renew()
        now = await store.holders()
        living = now.living + sum(before.unknown.get(id) != beat for id, beat in now.unknown.items())
    if living:
        count = f"{living} process{'es' if living > 1 else ''}"
        raise StoreUnavailable(f"{store.place} is in use by {count}. Stop all of them, and copy again.")


def _check_states(
    source: StoreState, target: StoreState, progress: CopyProgress | None, source_place: str, place: str
) -> None:
    """Raise InvalidInput unless the target is another store: new, or a copy of this source in this state."""
    if target.identity == source.identity:
        raise InvalidInput(f"{place} is {source_place}, or a backup of it. Copy into an empty store.")
    if progress is None:
        return
    if progress.source.identity != source.identity:
        raise InvalidInput(f"{place} is a copy of another store. Copy into an empty one.")
    if progress.source != source:
        raise InvalidInput(f"{source_place} was used since this copy began. Drop {place}, and copy again.")
    if progress.target not in (None, target):
        raise InvalidInput(f"{place} was used since it was copied. Copy into an empty store.")


async def _copy(
    source: RecordSource, target: RecordTarget, progress: CopyProgress, observer: CopyObserver
) -> CopyProgress:
    """Copy what comes behind the progress; return the last one."""
    counts = {table: await source.count(table) for table in TABLES}
    written = await target.snapshot()
    done = sum([await written.count(table) for table in TABLES])
    await written.close()
    observer.begin("Copying", sum(counts.values()), done)
    tables = list(TABLES)
    for table in tables[tables.index(progress.table) :]:
        after = progress.after if table == progress.table else None
        page = await source.read(table, after, PAGE_BYTES)
        while page.records:
            new = CopyProgress(progress.source, table, page.after)
            writing = target.write(table, page.records, progress, new)
            _, following = await _both(writing, source.read(table, page.after, PAGE_BYTES))
            observer.advance(len(page.records))
            progress, page = new, following
        observer.end(table, counts[table])
    return progress


async def _both(first: Awaitable[First], second: Awaitable[Second]) -> tuple[First, Second]:
    """Await both at once. Both have ended when this returns or raises."""
    other = asyncio.ensure_future(second)
    try:
        result = await first
    except BaseException:
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        raise
    return result, await other


async def _compare(source: RecordSource, target: RecordTarget, observer: CopyObserver) -> dict[str, int]:
    """Read both stores, and return the number of records by table. Raises StoreCorrupt if they differ."""
    written = await target.snapshot()
    try:
        observer.begin("Comparing", sum([await source.count(table) for table in TABLES]), 0)
        contents: dict[str, Content] = {}
        different = []
        for table in TABLES:
            contents[table], copied = await _both(
                content_of(source, table, observer.advance), content_of(written, table, lambda _: None)
            )
            if contents[table] != copied:
                different.append(f"{table} ({copied.count} of {contents[table].count} records)")
            observer.end(table, contents[table].count)
    finally:
        await written.close()
    if different:
        raise StoreCorrupt(
            f"{target.place} differs from {source.place}: {', '.join(different)}. "
            "Stop all processes, drop the copy, and copy again."
        )
    return {table: content.count for table, content in contents.items()}


async def content_of(source: RecordSource, table: str, advance: Callable[[int], None]) -> Content:
    """Read a table to its end."""
    count, digest = 0, 0
    page = await source.read(table, None, PAGE_BYTES)
    while page.records:
        count += len(page.records)
        digest += _digest(page)
        advance(len(page.records))
        page = await source.read(table, page.after, PAGE_BYTES)
    return Content(count, digest % _MODULUS)


_MODULUS = 1 << 128


def _digest(page: RecordPage) -> int:
    """Return the sum of the digests of records: stores read them in different orders."""
    encode, blake = msgspec.msgpack.encode, hashlib.blake2b
    return sum(int.from_bytes(blake(encode(each), digest_size=16).digest()) for each in page.records)
