"""The reader and the group-commit writer, also while another process holds the write lock."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from tests.unit.stores.sqlite.operations import (
    add_claim_then_refuse,
    add_claims,
    beat,
    has_claim,
    ids,
    leases,
    migrate_further,
    refuse,
)
from turnledger import Ledger, Limits, RunningTurn
from turnledger.chat import Chat
from turnledger.engine.lane import shield
from turnledger.engine.ports import Sync, Tables
from turnledger.engine.turn.commit import commit
from turnledger.errors import (
    CommitOutcomeUnknown,
    InvalidInput,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
    Superseded,
    turn_of,
)
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import SqliteStore, connections, threads
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.stores.sqlite.threads import Job, SqliteReader, StoreThread, Writer
from turnledger.testing.faulty_disk import FaultyDisk


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
def test_read_that_cannot_end_its_transaction_raises_the_error_and_not_outcome_unknown(
    path: Path, problem: apsw.Error, kind: type[StoreError]
) -> None:
    connections.prepare(str(path))
    reader: Any = SqliteReader(connections.connect_reader(str(path)), str(path))
    reader._cursor = Failing(reader._cursor, problem)
    first, second, third = (Job(has_claim, "a", "owner") for _ in range(3))
    reader.run_batch([first, second])
    assert [type(job.error) for job in (first, second)] == [kind] * 2
    reader.run_batch([third])
    assert third.outcome() is False
    reader.close()


async def test_bug_in_the_reader_raises_store_error_and_not_outcome_unknown(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(jobs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(store._reader, "run_batch", broken)
    with pytest.raises(StoreError, match="ZeroDivisionError") as caught:
        await store.read(has_claim, "a", "owner")
    assert type(caught.value) is StoreError


class Idle:
    """Does nothing with what it is given."""

    unforeseen = StoreError

    def run_batch(self, jobs: Sequence[Job]) -> None: ...
    def close(self) -> None: ...


async def test_failing_poll_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_stop_iteration_from_a_job_is_wrapped_and_harms_no_other_job(store: SqliteStore) -> None:
    def no_coroutine(rows: Any, _: None) -> Any:
        raise StopIteration(1)

    for run in (store.transact_whole, store.read_whole):
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


async def wait_at(rows: object, gate: tuple[threading.Event, threading.Event]) -> None:
    gate[0].set()
    assert gate[1].wait(60)


async def nothing(rows: object, _: None) -> None: ...


@pytest.mark.parametrize("watches", [True, False])
def test_store_whose_loop_was_closed_releases_its_threads_lease_and_files(
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
        found = await store.read_whole(leases, None)
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


def test_job_queued_when_the_loop_was_closed_is_still_committed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event(), threading.Event()

    async def leave_open() -> SqliteStore:
        store = await SqliteStore.open(path)
        worker = store._write_worker
        assert worker is not None
        worker.submit(Job(wait_at, gate))
        await asyncio.to_thread(gate[0].wait, 60)
        worker.submit(Job(add_claims, ("a",), "owner", future=asyncio.get_running_loop().create_future()))
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
            return await tables.claim("a") is not None

        there = await again.read(found, None, "owner")
        await again.close()
        return there

    assert asyncio.run(is_there())


class Bench:
    """A writer on a new store, with a count of its commits."""

    def __init__(self, path: str, vfs: str | None = None) -> None:
        connections.prepare(path, vfs)
        self.path = path
        self.vfs = vfs
        self.connection = connections.connect_writer(path, vfs)
        self.commits = 0
        self.connection.set_commit_hook(self.count_commit)
        self.writer = Writer(self.connection, path)

    def count_commit(self) -> bool:
        self.commits += 1
        return False

    def run(self, *jobs: Job) -> list[Job]:
        self.writer.run_batch(jobs)
        return list(jobs)

    def has(self, *claims: str, vfs: bool = True) -> list[bool]:
        reader = SqliteReader(connections.connect_reader(self.path, self.vfs if vfs else None), self.path)
        jobs = [Job(has_claim, claim, "owner") for claim in claims]
        reader.run_batch(jobs)
        reader.close()
        return [job.outcome() for job in jobs]


def add(*claims: str, sync: Sync = Sync.DISK) -> Job:
    return Job(add_claims, claims, "owner", sync)


def add_then_refuse(claim: str) -> Job:
    return Job(add_claim_then_refuse, (claim,), "owner")


@pytest.fixture
def bench(path: Path) -> Iterator[Bench]:
    bench = Bench(str(path))
    yield bench
    bench.writer.close()


def test_batch_is_committed_as_one_transaction(bench: Bench) -> None:
    jobs = bench.run(add("a"), add("b"), add("c"))
    assert [job.error for job in jobs] == [None] * 3
    assert bench.commits == 1
    assert bench.has("a", "b", "c") == [True] * 3


def test_job_that_raises_is_undone_without_the_others_of_its_batch(bench: Bench) -> None:
    jobs = bench.run(add("a"), add_then_refuse("b"), add("c"), add_then_refuse("d"), add("e"))
    assert [type(job.error) for job in jobs] == [type(None), Superseded, type(None), Superseded, type(None)]
    assert bench.has("a", "b", "c", "d", "e") == [True, False, True, False, True]


def test_job_that_raises_before_it_writes_causes_no_second_commit(bench: Bench) -> None:
    jobs = bench.run(add("a"), Job(refuse, None), add("b"))
    assert isinstance(jobs[1].error, Superseded)
    assert bench.commits == 1
    assert bench.has("a", "b") == [True, True]


def test_job_alone_in_its_batch_that_raises_is_undone(bench: Bench) -> None:
    (job,) = bench.run(add_then_refuse("a"))
    with pytest.raises(Superseded):
        job.outcome()
    assert bench.has("a") == [False]
    assert not bench.connection.in_transaction


def test_job_sees_the_writes_of_earlier_jobs_of_its_batch(bench: Bench) -> None:
    _, job = bench.run(add("a"), Job(has_claim, "a", "owner"))
    assert job.outcome() is True


def test_jobs_of_a_batch_that_sqlite_rolled_back_are_run_again(bench: Bench) -> None:
    async def give_up(tables: Tables, _: None) -> None:
        bench.connection.execute("INSERT INTO lease (id, beat) VALUES (x'00', 1)")
        bench.connection.execute("INSERT OR ROLLBACK INTO lease VALUES (x'00', 1)")

    jobs = bench.run(add("a"), Job(give_up, None), add("b"), Job(refuse, None), add("c"))
    assert [job.error is None for job in jobs] == [True, False, True, False, True]
    assert bench.has("a", "b", "c") == [True] * 3


def test_full_disk_fails_only_the_job_that_does_not_fit(bench: Bench) -> None:
    bench.connection.pragma("max_page_count", bench.connection.pragma("page_count") + 2)
    jobs = bench.run(add("a"), add("b" * 100_000), add("c"))
    assert [type(job.error) for job in jobs] == [type(None), StoreFull, type(None)]
    assert bench.has("a", "b" * 100_000, "c") == [True, False, True]


def test_failed_commit_makes_every_outcome_of_the_batch_unknown(path: Path, disk: FaultyDisk) -> None:
    bench = Bench(str(path), disk.name)
    disk.refuses_sync = "-wal"
    jobs = bench.run(add("a"), Job(refuse, None), add("b"))
    assert [type(job.error) for job in jobs] == [OutcomeUnknown] * 3
    assert not bench.connection.in_transaction
    bench.writer.close()


def test_full_disk_at_commit_fails_the_batch_with_store_full(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    bench = Bench(str(path), disk.name)
    bench.run(add("first"))
    for sync in (Sync.PROCESS, Sync.DISK):
        disk.is_full = True
        jobs = bench.run(add("a", sync=sync), Job(refuse, None), add("b", sync=sync))
        assert [type(job.error) for job in jobs] == [StoreFull] * 3
        disk.is_full = False
        restarted = Bench(str(disk.lose_power(path, tmp_path / sync.name, Random(1))))
        assert restarted.has("first", "a", "b") == [True, False, False]
        restarted.writer.close()
    assert bench.run(add("a"))[0].error is None
    bench.writer.close()


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (apsw.CorruptError("malformed"), "malformed. .* restore it from a backup"),
        (apsw.IOError("disk I/O error"), "disk I/O error. The write may be stored or not"),
    ],
)
def test_unknown_outcome_names_its_reason(
    path: Path, disk: FaultyDisk, refusal: apsw.Error, reason: str
) -> None:
    bench = Bench(str(path), disk.name)
    disk.refuses_sync, disk.refusal = "-wal", refusal
    (job,) = bench.run(add("a"))
    with pytest.raises(OutcomeUnknown, match=reason):
        job.outcome()
    bench.writer.close()


def test_batch_of_failed_jobs_keeps_their_own_errors(path: Path) -> None:
    bench = Bench(str(path))
    ((page,),) = bench.connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'lease'"
    ).fetchall()
    bench.writer.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * connections.PAGE_SIZE : page * connections.PAGE_SIZE] = (
        b"\xff" * connections.PAGE_SIZE
    )
    path.write_bytes(content)
    bench = Bench(str(path))
    jobs = bench.run(Job(beat, ids.new(LeaseId)), Job(refuse, None))
    assert [type(job.error) for job in jobs] == [StoreCorrupt, Superseded]
    assert not bench.connection.in_transaction
    bench.writer.close()


def test_write_that_failed_to_sync_is_absent_after_the_next_write(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    bench = Bench(str(path), disk.name)
    bench.run(add("first"))
    disk.refuses_sync = "-wal"
    bench.run(add("lost"))
    disk.refuses_sync = None
    (job,) = bench.run(add("next"))
    assert job.error is None
    before = bench.has("lost", "next")
    restarted = Bench(str(disk.lose_power(path, tmp_path / "restarted")))
    assert before == restarted.has("lost", "next") == [False, True]
    restarted.writer.close()
    bench.writer.close()


def test_write_that_failed_to_sync_may_reappear_after_a_restart(path: Path, disk: FaultyDisk) -> None:
    bench = Bench(str(path), disk.name)
    bench.run(add("first"))  # writes the header of the log
    disk.refuses_sync = "-wal"
    bench.run(add("ghost"))
    assert bench.has("ghost") == [False]
    folder = path.parent / "restarted"
    folder.mkdir()
    for each in (path, path.with_name(f"{path.name}-wal")):
        folder.joinpath(each.name).write_bytes(each.read_bytes())
    restarted = Bench(str(folder / path.name))
    assert restarted.has("ghost") == [True]
    restarted.writer.close()
    bench.writer.close()


@pytest.mark.parametrize(
    ("levels", "syncs"),
    [
        ((Sync.DISK,), 1),
        ((Sync.PROCESS,), 0),
        ((Sync.PROCESS, Sync.PROCESS), 0),
        ((Sync.PROCESS, Sync.DISK, Sync.PROCESS), 1),
    ],
)
def test_batch_is_synced_if_any_of_its_jobs_requires_it(
    path: Path, disk: FaultyDisk, levels: tuple[Sync, ...], syncs: int
) -> None:
    bench = Bench(str(path), disk.name)
    for round in "abc":
        bench.run(add("before" + round, sync=Sync.DISK))
        before = len(disk.syncs)
        bench.run(*(add(f"{round}{n}", sync=level) for n, level in enumerate(levels)))
        assert len(disk.syncs) - before == syncs
        bench.run(add("after" + round, sync=Sync.PROCESS))
    bench.writer.close()


def test_write_lock_held_by_another_process_makes_the_store_unavailable(bench: Bench) -> None:
    neighbour = apsw.Connection(bench.path)
    neighbour.execute("BEGIN IMMEDIATE")
    bench.connection.set_busy_timeout(0)
    jobs = bench.run(add("a"), add("b"))
    assert [type(job.error) for job in jobs] == [StoreUnavailable] * 2
    neighbour.execute("ROLLBACK")
    (job,) = bench.run(add("c"))
    assert job.error is None
    assert bench.has("a", "b", "c") == [False, False, True]
    neighbour.close()


def test_job_withdrawn_while_the_lock_is_held_elsewhere_leaves_its_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour = apsw.Connection(bench.path)
    neighbour.execute("BEGIN IMMEDIATE")
    patient, withdrawn = add("a"), add("b")
    handed_over: list[Job] = []
    bench.writer.hand_over = handed_over.extend
    waits: Iterator[Callable[[], object]] = iter(
        [withdrawn.withdraw, lambda: None, lambda: neighbour.execute("ROLLBACK")]
    )
    monkeypatch.setattr(time, "sleep", lambda _: next(waits)())
    bench.run(patient, withdrawn)
    assert handed_over == [withdrawn]
    assert isinstance(withdrawn.error, StoreUnavailable)
    assert patient.error is None
    assert bench.has("a", "b") == [True, False]
    neighbour.close()


async def test_job_withdrawn_before_it_is_claimed_raises_and_never_runs() -> None:
    future: asyncio.Future[None] = asyncio.Future()
    for job in (Job(refuse, None, future=future), Job(refuse, None)):
        job.withdraw()
        assert job.is_withdrawn
        assert not job.claim()
    with pytest.raises(StoreUnavailable, match="Nothing was written"):
        future.result()


async def test_job_withdrawn_after_it_was_claimed_is_answered_by_the_writer() -> None:
    future: asyncio.Future[None] = asyncio.Future()
    job = Job(refuse, None, future=future)
    assert not job.is_withdrawn
    assert job.claim()
    job.withdraw()
    assert job.is_withdrawn
    assert not future.done()


async def test_job_withdrawn_after_its_answer_changes_nothing() -> None:
    future: asyncio.Future[str] = asyncio.Future()
    future.set_result("answer")
    Job(refuse, None, future=future).withdraw()
    assert await future == "answer"


def test_operation_that_awaits_anything_but_the_tables_is_undone(bench: Bench) -> None:
    class Never:
        def __await__(self) -> Iterator[None]:
            yield

    ended: list[str] = []

    async def waits(tables: Tables, _: None) -> None:
        await add_claims(tables, ("a",))
        try:
            await Never()
        finally:
            ended.append("waits")

    _, job = bench.run(add("b"), Job(waits, None, "owner"))
    assert ended == ["waits"] * 2  # in the batch, then alone
    with pytest.raises(RuntimeError, match="waits"):
        job.outcome()
    assert bench.has("a", "b") == [False, True]


def test_text_that_cannot_be_stored_raises_invalid_input(bench: Bench) -> None:
    (job,) = bench.run(add("\ud800"))
    with pytest.raises(InvalidInput):
        job.outcome()


def test_transaction_left_open_is_ended_before_the_next(bench: Bench) -> None:
    bench.connection.execute("BEGIN IMMEDIATE; INSERT INTO lease (id, beat) VALUES (x'00', 1)")
    (job,) = bench.run(add("a"))
    assert job.error is None
    assert bench.connection.execute("SELECT count(*) FROM lease").fetchall() == [(0,)]


def test_writer_refuses_every_transaction_after_a_newer_process_migrated_the_store(bench: Bench) -> None:
    bench.run(add("before"))
    migrate_further(bench.path)
    jobs = bench.run(add("a"), add("b", sync=Sync.PROCESS), Job(has_claim, "before", "owner"))
    for job in jobs:
        with pytest.raises(StoreTooNew, match=f"schema {VERSION + 1}"):
            job.outcome()
    assert not bench.connection.in_transaction
    rows = bench.connection.execute("SELECT idempotency_key FROM claim").fetchall()
    assert rows == [("before",)]


GUARD = 60.0
"""Seconds after which a task that should have ended is given up: far below what it would wait otherwise."""


class Watched:
    """A store that signals when it receives a commit and when it refuses one."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.received, self.refused = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transact(self, operation: Any, *rest: Any) -> Any:
        if operation is commit:
            self.received.set()
        try:
            return await self._store.transact(operation, *rest)
        except StoreUnavailable:
            self.refused.set()
            raise


@pytest.fixture
async def store(path: Path) -> Watched:
    return Watched(await SqliteStore.open(path))


@pytest.fixture
async def ledger(store: Watched) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store) as ledger:
        yield ledger


@contextmanager
def neighbour_of(path: Path) -> Iterator[apsw.Connection]:
    """Another connection to the same file, as another process has one."""
    neighbour = apsw.Connection(str(path))
    try:
        yield neighbour
    finally:
        neighbour.close(True)


async def answer(chat: Chat, neighbour: apsw.Connection, **policy: str) -> None:
    """Run a turn whose commit finds the lock held."""

    async def run(turn: RunningTurn) -> None:
        turn.emit("Whole.")
        neighbour.execute("BEGIN IMMEDIATE")

    await chat.run(run, "q", **policy)  # type: ignore[arg-type]


async def finish(task: asyncio.Task[Any]) -> None:
    done, _ = await asyncio.wait((task,), timeout=GUARD)
    assert done, "the caller is held"


async def cancel_at_commit(store: Watched, turn: Coroutine[Any, Any, None]) -> asyncio.CancelledError:
    task = asyncio.create_task(turn)
    await store.received.wait()
    task.cancel()
    await finish(task)
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    return cancelled.value


async def expect_free(ledger: Ledger, chat: Chat) -> None:
    """Expect that nothing was kept, and that the next turn need not wait."""
    await ledger._recovery.run_round()
    assert await chat.turns() == []
    await chat.run(answer_yes, "next", on_busy="reject")


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write waits for longer than the test, its cancelled caller for a moment."""
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 2 * GUARD)
    monkeypatch.setattr(shield, "GRACE", 0.01)


async def test_commit_succeeds_when_the_lock_is_released_after_the_busy_timeout(
    path: Path, store: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.01)
    monkeypatch.setattr(ledger._process, "limits", Limits(doubt_patience=0.0))
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(answer(chat, neighbour))
        await store.refused.wait()
        neighbour.execute("ROLLBACK")
        await finish(task)
    await task
    assert [turn.text for turn in await chat.turns()] == ["Whole."]


async def test_commit_beyond_its_patience_raises_store_unavailable_without_waiting_for_the_end(
    path: Path, store: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end needs the same lock, so it is not waited for: it is recorded when the lock is free."""
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.01)
    monkeypatch.setattr(ledger._process, "limits", Limits(commit_patience=0.0))
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(answer(chat, neighbour))
        await finish(task)
        assert isinstance(task.exception(), StoreUnavailable)
        neighbour.execute("ROLLBACK")
    await expect_free(ledger, chat)


@pytest.mark.usefixtures("short_grace")
async def test_caller_cancelled_while_its_commit_waits_for_the_lock_is_released(
    path: Path, store: Watched, ledger: Ledger
) -> None:
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        cancelled = await cancel_at_commit(store, answer(chat, neighbour))
        assert turn_of(cancelled) is None
        neighbour.execute("ROLLBACK")
    await expect_free(ledger, chat)


@pytest.mark.usefixtures("short_grace")
async def test_cancelled_turn_that_may_be_kept_later_raises_commit_outcome_unknown(
    path: Path, store: Watched, ledger: Ledger
) -> None:
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        cancelled = await cancel_at_commit(store, answer(chat, neighbour, on_failure="keep"))
        with pytest.raises(CommitOutcomeUnknown):
            turn_of(cancelled)
        neighbour.execute("ROLLBACK")
    await ledger._recovery.run_round()
    assert [turn.kind for turn in await chat.turns()] == ["interrupted"]


@pytest.mark.usefixtures("short_grace")
async def test_caller_cancelled_while_its_commit_is_queued_is_released(
    path: Path, store: Watched, ledger: Ledger
) -> None:
    chat, other = await ledger.conversation(), await ledger.conversation()
    with neighbour_of(path) as neighbour:
        patient = asyncio.create_task(hold_writer(other, neighbour))
        turn = asyncio.create_task(chat.run(answer_yes, "q"))
        await asyncio.sleep(0)
        turn.cancel()
        await finish(turn)
        assert turn.cancelled()
        assert not patient.done()
        neighbour.execute("ROLLBACK")
    await patient
    await expect_free(ledger, chat)


async def test_cancelled_caller_keeps_no_result_from_the_others_of_its_batch() -> None:
    loop = asyncio.get_running_loop()
    cancelled, waiting = loop.create_future(), loop.create_future()
    batch = [Job(beat, None, future=each) for each in (cancelled, waiting)]
    cancelled.cancel()
    threads._deliver(batch)
    assert waiting.done()


@pytest.mark.usefixtures("short_grace")
async def test_caller_cancelled_inside_its_block_does_not_wait_for_the_lock(
    path: Path, ledger: Ledger
) -> None:
    chat, begun = await ledger.conversation(), asyncio.Event()

    async def hang(turn: RunningTurn) -> None:
        turn.emit("Half")
        begun.set()
        await asyncio.Event().wait()

    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(chat.run(hang, "q"))
        await begun.wait()
        neighbour.execute("BEGIN IMMEDIATE")
        task.cancel()
        await finish(task)
        assert task.cancelled()
        neighbour.execute("ROLLBACK")
    await ledger._recovery.run_round()
    await chat.run(answer_yes, "next", on_busy="reject")
    assert [turn.text for turn in await chat.turns()] == ["Yes."]


async def hold_writer(chat: Chat, neighbour: apsw.Connection) -> None:
    neighbour.execute("BEGIN IMMEDIATE")
    await chat.update(title="patient")


async def answer_yes(turn: RunningTurn) -> None:
    turn.emit("Yes.")
