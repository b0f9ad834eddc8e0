"""A look at a SQLite store that takes no part in it."""

from __future__ import annotations

import asyncio
from os import PathLike, fsdecode
from typing import cast

import apsw

from turnledger.engine.ports import Operation, Request, Result
from turnledger.stores.sqlite import connections, inherited
from turnledger.stores.sqlite.file_place import check_place
from turnledger.stores.sqlite.threads import Job, SqliteReader


class SqliteVisit:
    """Reads a file that others may be using. Made by `open`; has no threads of its own."""

    def __init__(self, reader: SqliteReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls, path: str | PathLike[str]) -> SqliteVisit:
        """Open the store in this file, which must be there and up to date; raises what `SqliteStore.open`
        does."""
        return cls(await asyncio.to_thread(_open, fsdecode(path)))

    async def read(self, operation: Operation[Request, Result], request: Request) -> Result:
        """Run a reading operation on one view. One at a time."""
        job = Job(operation, request)
        await asyncio.to_thread(self._reader.run_batch, [job])
        return cast(Result, job.outcome())

    async def close(self) -> None:
        await asyncio.to_thread(self._reader.close)


def _open(path: str) -> SqliteReader:
    connections.check_sqlite(apsw.sqlite_lib_version())
    inherited.check(check_place(path))
    return SqliteReader(connections.connect_visitor(path), path)
