"""SQLite and the memory store side by side; every operation runs on both."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
from hypothesis import HealthCheck, settings
from msgspec.structs import replace

from tests.stateful.visible_state import everything
from tests.unit.engine.stage import drive
from turnledger.engine.conversations.catalogue import ListChats, list_page
from turnledger.engine.ports import Store, Tables
from turnledger.engine.turn.begin import MustReachDisk
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore, Write
from turnledger.errors import TurnledgerError
from turnledger.model.catalogue import Page
from turnledger.stores.memory import MemoryStore
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.threads import Job

SHARED_MEMORY = Path("/dev/shm")


def repeatable(*, examples: int, steps: int) -> settings:
    """Return settings for repeatable runs."""
    return settings(
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=True,
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=[HealthCheck.too_slow],
    )


class Undone(Exception):
    """Raised inside a transaction to roll it back."""


CAUGHT = (TurnledgerError, MustReachDisk, Undone)


@dataclass(frozen=True)
class Outcome:
    """The result of an operation, or the class of its error."""

    value: Any = None
    error: type[BaseException] | None = None


class Pair:
    """Runs operations on both stores; raises AssertionError for any difference."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        self._path = str(Path(self._folder) / "chats.db")
        self._loop = asyncio.Runner()
        self.memory = MemoryStore()
        self.other: Store
        self.sqlite = self.other = self._loop.run(SqliteStore.open(self._path, inline=True))
        self.seen: dict[str, Any] = {}

    def transact(self, operation: AnyOperation, request: Any, owner: str | None) -> Outcome:
        """Run a writing operation on both, on the rows of an owner or of all (None); one that raises must
        change nothing."""
        expected = self._write(operation, request, owner)
        before = self._rows_written()
        assert self._outcome_of(WrappedStore(self.other).write(Write(operation, request, owner))) == expected
        self._look(changed=expected.error is None, wrote=self._rows_written() != before)
        return expected

    def _write(self, operation: AnyOperation, request: Any, owner: str | None) -> Outcome:
        before = rows_of(self.memory)
        found = outcome_of(WrappedStore(self.memory).write(Write(operation, request, owner)))
        if found.error is not None:
            assert rows_of(self.memory) == before, "an index or a count was not restored"
        return found

    def batch(self, operation: AnyOperation, requests: Sequence[tuple[Any, str | None]]) -> list[Outcome]:
        """Run several: in SQLite as one group commit, in the reference one by one."""
        expected = [self._write(operation, request, owner) for request, owner in requests]
        jobs = [Job(operation, request, owner) for request, owner in requests]
        self.sqlite._writer.run_batch(jobs)
        assert [_outcome_of_job(job) for job in jobs] == expected
        self._look(changed=any(each.error is None for each in expected), wrote=True)
        return expected

    def read(self, operation: AnyOperation, request: Any, owner: str | None) -> Outcome:
        memory = outcome_of(WrappedStore(self.memory).look(operation, request, owner))
        assert self._outcome_of(WrappedStore(self.other).look(operation, request, owner)) == memory
        return memory

    def _run(self, work: Any) -> Any:
        """Run a call of the other store."""
        return drive(work)

    def _outcome_of(self, work: Any) -> Outcome:
        try:
            return Outcome(self._run(work))
        except CAUGHT as problem:
            return Outcome(error=type(problem))

    def _rows_written(self) -> object:
        """Return the number of rows that the other store has ever written."""
        return self.sqlite._writer._connection.total_changes()

    def _look(self, *, changed: bool, wrote: bool) -> None:
        """Compare the visible states; skipped for a file without new rows."""
        seen = drive(self.memory.inspect(everything, None))
        shown = self._run(self.other.inspect(everything, None)) if wrote else self.seen
        assert differences(seen, shown) == {}
        if not changed:
            assert differences(self.seen, seen) == {}, "what was refused has changed something"
        self.seen = seen

    def close(self) -> None:
        self._loop.run(self.sqlite.close())
        self._loop.close()
        try:
            _check_file(self._path)
        finally:
            shutil.rmtree(self._folder)


def rows_of(memory: MemoryStore) -> dict[str, Any]:
    """Copy the dictionaries of a memory store, and those inside them."""
    tables = {name: rows for name, rows in vars(memory._db).items() if isinstance(rows, dict)}
    return {
        name: {key: dict(row) if isinstance(row, dict) else row for key, row in rows.items()}
        for name, rows in tables.items()
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted({*one, *other})
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}


async def chats_listed(tables: Tables, request: ListChats) -> Page:
    """What `list_page` finds, without the position, which is the store's own."""
    return replace(await list_page(tables, request), as_of="")


def outcome_of(work: Any) -> Outcome:
    try:
        return Outcome(drive(work))
    except CAUGHT as problem:
        return Outcome(error=type(problem))


def _outcome_of_job(job: Job) -> Outcome:
    return Outcome(job.result) if job.error is None else Outcome(error=type(job.error))


def _check_file(path: str) -> None:
    """Check that nothing is damaged and no row of a removed attempt or turn is left."""
    connection = apsw.Connection(path)
    try:
        assert connection.pragma("integrity_check") == "ok"
        lost = "SELECT attempt FROM attempt_input WHERE attempt NOT IN (SELECT id FROM attempt)"
        assert connection.execute(lost).fetchall() == []
        lost = "SELECT turn FROM item_flag WHERE turn NOT IN (SELECT id FROM turn)"
        assert connection.execute(lost).fetchall() == []
    finally:
        connection.close()
