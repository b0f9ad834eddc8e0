"""Read a SQLite file, or examine its state, without taking part. Creates and writes nothing."""

from __future__ import annotations

import asyncio
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec

from turnledger.engine.ports import InspectOperation, Operation, Request, Result, WholeOperation
from turnledger.model.ids import LeaseId
from turnledger.stores.sql.queries import named_queries
from turnledger.stores.sqlite import connections
from turnledger.stores.sqlite.failures import translate
from turnledger.stores.sqlite.files import check_not_inherited, check_place, size_of
from turnledger.stores.sqlite.leases import LockFiles
from turnledger.stores.sqlite.migrations import version_of
from turnledger.stores.sqlite.tables.records import sql_text
from turnledger.stores.sqlite.threads import Job, SqliteReader


class ReadOnlySqlite:
    """Reads a file that other processes may be using. Made by `open`; has no threads."""

    def __init__(self, reader: SqliteReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls, path: str | PathLike[str]) -> ReadOnlySqlite:
        """Open an existing, current store in this file; raises as `SqliteStore.open`."""
        return cls(await asyncio.to_thread(_open, fsdecode(path)))

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        """Run a reading operation on one snapshot. One at a time."""
        return cast(Result, await self._run(Job(operation, request, owner)))

    async def read_whole(self, operation: WholeOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._run(Job(operation, request)))

    async def inspect(self, operation: InspectOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._run(Job(operation, request)))

    async def _run(self, job: Job) -> Any:
        await asyncio.to_thread(self._reader.run_batch, [job])
        return job.outcome()

    async def close(self) -> None:
        await asyncio.to_thread(self._reader.close)


def _open(path: str) -> SqliteReader:
    connections.check_sqlite(apsw.sqlite_lib_version())
    check_not_inherited(check_place(path))
    return SqliteReader(connections.connect_read_only(path), path)


QUERIES = named_queries(sql_text("examination.sql"))
PATIENCE_MS = 2_000
"""How long another process may hold the lock before it counts as stuck."""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    journal_mode: str
    file_bytes: int
    log_bytes: int
    living: int
    """Processes that use it now."""
    dead: int
    """Dead processes, whose work the next process to open the store takes over."""
    unknown: int
    """Processes that cannot be checked from here."""
    newest_ms: int | None
    """When the last turn was committed, by the clock of its process."""
    is_stuck: bool
    """Whether a process holds the lock and does not release it."""


def sqlite_version() -> str:
    """Return the version of SQLite in use. Raises UnsafeSqlite for one that may damage a store."""
    version = apsw.sqlite_lib_version()
    connections.check_sqlite(version)
    return version


def examine(path: str) -> Examination:
    """Examine the store at this path. Raises as `open` does; blocks."""
    connection = connections.connect_read_only(path)
    try:
        place = Path(connection.filename)
        living, dead, unknown = _participants(connection, place)
        return Examination(
            schema=version_of(connection),
            journal_mode=str(connection.pragma("journal_mode")),
            file_bytes=size_of(place),
            log_bytes=size_of(Path(f"{place}-wal")),
            living=living,
            dead=dead,
            unknown=unknown,
            newest_ms=_newest(connection),
            is_stuck=_is_stuck(connection),
        )
    except apsw.Error as problem:
        raise translate(problem, path) from problem
    finally:
        connection.close(True)


def _newest(connection: apsw.Connection) -> int | None:
    [(value,)] = connection.execute(QUERIES["newest"]).fetchall()
    return value if isinstance(value, int) else None


def _participants(connection: apsw.Connection, place: Path) -> tuple[int, int, int]:
    locks = LockFiles(str(place))
    rows = connection.execute(QUERIES["leases"]).fetchall()
    leases = [LeaseId.trusted(raw) for (raw,) in rows if isinstance(raw, bytes)]
    dead = sum(locks.is_unlocked(each) for each in leases)
    living = sum(locks.is_there(each) for each in leases) - dead
    return living, dead, len(leases) - living - dead


def _is_stuck(connection: apsw.Connection) -> bool:
    connection.set_busy_timeout(PATIENCE_MS)
    connection.pragma("query_only", False)  # required to request the lock
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return True
    connection.execute("ROLLBACK")
    return False
