"""The reader: runs reading operations beside the writer, on a connection that cannot write."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from turnledger.errors import StoreError, StoreTooNew, StoreUnavailable
from turnledger.stores.sqlite.failures import translated
from turnledger.stores.sqlite.migrations import check_still_known
from turnledger.stores.sqlite.moved import OpenFiles
from turnledger.stores.sqlite.writer import Job


class Reader:
    """Reads through one connection. Not for use by two threads at a time."""

    unforeseen = StoreError

    def __init__(self, connection: apsw.Connection, path: str, watched: OpenFiles | None = None) -> None:
        """`watched` are the files of the writer beside it, which looks at them now and then."""
        self._connection = connection
        self._path = path
        self._files = OpenFiles(connection)
        self._watched = watched or self._files
        self._cursor = connection.cursor()

    def run_batch(self, jobs: Sequence[Job]) -> None:
        """Run the jobs on one view of the store, taken after the last of them was asked for."""
        try:
            self._end()  # what an earlier failure may have left open
            if self._watched.lost:
                raise self._watched.error()
            self._cursor.execute("BEGIN")
            check_still_known(self._cursor, self._path)
            for job in jobs:
                self._run(job)
            self._end()
        except (apsw.Error, StoreTooNew, StoreUnavailable) as problem:
            for job in jobs:
                job.error = translated(problem, self._path)

    def _run(self, job: Job) -> None:
        try:
            job.run(self._cursor)
        except BaseException as problem:
            job.error = translated(problem, self._path)

    def _end(self) -> None:
        # A failed read may have ended the transaction itself.
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def close(self) -> None:
        self._files.close()
