"""The reader, driven by hand.

The threads: what must not end them, and what must.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.unit.stores.sqlite.operations import add_claims, has_claim, ids, leases
from turnledger.engine.ports import Tables
from turnledger.errors import StoreCorrupt, StoreError, StoreUnavailable
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import SqliteStore, connections
from turnledger.stores.sqlite.threads import Job, SqliteReader, StoreThread


class Failing:
    """A cursor that cannot end a transaction, once."""

    def __init__(self, cursor: apsw.Cursor, problem: apsw.Error) -> None:
        self._cursor = cursor
        self._problems = [problem]

    def execute(self, statement: str, *bindings: Any) -> apsw.Cursor:
        if statement == "ROLLBACK" and self._problems:
            raise self._problems.pop()
        return self._cursor.execute(statement, *bindings)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [(apsw.IOError("disk I/O error"), StoreUnavailable), (apsw.NotADBError("no database"), StoreCorrupt)],
)
def test_a_view_that_cannot_be_ended_is_no_unknown_outcome(
    path: Path, problem: apsw.Error, kind: type[StoreError]
) -> None:
    connections.prepare(str(path))
    reader: Any = SqliteReader(connections.connect_reader(str(path)), str(path))
    reader._cursor = Failing(reader._cursor, problem)
    first, second, third = (Job(has_claim, ("owner", "a")) for _ in range(3))
    reader.run_batch([first, second])
    assert [type(job.error) for job in (first, second)] == [kind] * 2
    reader.run_batch([third])
    assert third.outcome() is False
    reader.close()


async def test_a_bug_in_the_reader_is_no_unknown_outcome(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(jobs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(store._reader, "run_batch", broken)
    with pytest.raises(StoreError, match="ZeroDivisionError") as caught:
        await store.read(has_claim, ("owner", "a"))
    assert type(caught.value) is StoreError


class Idle:
    """Does nothing with what it is given."""

    unforeseen = StoreError

    def run_batch(self, jobs: Sequence[Job]) -> None: ...
    def close(self) -> None: ...


async def test_a_poll_that_fails_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    worker = StoreThread("idle", Idle(), asyncio.get_running_loop())
    polls: list[None] = []
    enough = threading.Event()

    def fail() -> None:
        polls.append(None)
        if len(polls) == 3:
            enough.set()
        raise ZeroDivisionError

    worker.poll(fail, every=0.0)
    assert await asyncio.to_thread(enough.wait, 60)
    await asyncio.to_thread(worker.stop)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_an_error_that_no_future_can_hold_harms_no_other_job(store: SqliteStore) -> None:
    def no_coroutine(tables: Tables, _: None) -> Any:
        raise StopIteration(1)

    for run in (store.transact, store.read):
        gate = threading.Event(), threading.Event()
        first = asyncio.create_task(run(wait_at, gate))
        await asyncio.to_thread(gate[0].wait, 60)
        bad, good = asyncio.create_task(run(no_coroutine, None)), asyncio.create_task(run(nothing, None))
        await asyncio.sleep(0)
        gate[1].set()
        await asyncio.gather(first, good)
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            await bad
        assert isinstance(caught.value.__cause__, StopIteration)


async def wait_at(tables: Tables, gate: tuple[threading.Event, threading.Event]) -> None:
    gate[0].set()
    assert gate[1].wait(60)


async def nothing(tables: Tables, _: None) -> None: ...


@pytest.mark.parametrize("watches", [True, False])
def test_when_its_loop_was_closed_a_store_lets_go_of_everything(
    path: Path, watches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())

    async def leave_open() -> SqliteStore:
        store = await SqliteStore.open(path)
        await store.keep_lease(ids.new(LeaseId), every=60 if watches else 0.001)
        if watches:
            store.watch(lambda: None)
        return store

    async def left() -> set[LeaseId]:
        store = await SqliteStore.open(path, inline=True)
        found = await store.read(leases, None)
        await store.close()
        return found

    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.WARNING):
        store = loop.run_until_complete(leave_open())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        for thread in set(threading.enumerate()) - before:
            thread.join(60)
            assert not thread.is_alive()
    assert caplog.records == []
    assert asyncio.run(left()) == set()
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    del store


def test_what_was_queued_when_the_loop_was_closed_still_happens(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event(), threading.Event()

    async def leave_open() -> SqliteStore:
        store = await SqliteStore.open(path)
        worker = store._write_worker
        assert worker is not None
        worker.submit(Job(wait_at, gate))
        await asyncio.to_thread(gate[0].wait, 60)
        worker.submit(Job(add_claims, ("owner", "a"), future=asyncio.get_running_loop().create_future()))
        return store

    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(leave_open())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    gate[1].set()
    for worker in (store._write_worker, store._read_worker):
        assert worker is not None
        worker._thread.join(60)
        assert not worker._thread.is_alive()
    assert "results of 1 operations" in caplog.text

    async def is_there() -> bool:
        again = await SqliteStore.open(path, inline=True)

        async def found(tables: Tables, _: None) -> bool:
            return await tables.claim("owner", "a") is not None

        there = await again.read(found, None)
        await again.close()
        return there

    assert asyncio.run(is_there())
