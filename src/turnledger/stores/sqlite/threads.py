"""The two threads of a store: the group-commit writer, and the reader on a connection that cannot write.

All requests queued while a thread works form its next batch. The writer is a plain object that runs a batch
as one transaction; the simulator drives it without a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from enum import Enum
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol, TypeAlias

import apsw

from turnledger.engine.ports import Sync
from turnledger.errors import OutcomeUnknown, StoreError, StoreTooNew, StoreUnavailable
from turnledger.stores.sqlite.connections import Patience
from turnledger.stores.sqlite.failures import commit_failure, translate
from turnledger.stores.sqlite.files import OpenFiles
from turnledger.stores.sqlite.migrations import VERSION, check_version
from turnledger.stores.sqlite.tables.tables import LaneCache, SqliteTables
from turnledger.stores.sqlite.tables.whole import SqliteWholeStore

WITHDRAWN = "The caller was cancelled before the write began. Nothing was written."

logger = logging.getLogger(__name__)

AnyOperation: TypeAlias = Callable[[Any, Any], Awaitable[Any]]


class Job:
    """One operation and, after it ran, its result or error. Without an owner, it is on the rows of all."""

    __slots__ = (
        "_unclaimed",
        "error",
        "future",
        "is_withdrawn",
        "operation",
        "owner",
        "request",
        "result",
        "sync",
    )

    def __init__(
        self,
        operation: AnyOperation,
        request: Any,
        owner: str | None = None,
        sync: Sync = Sync.DISK,
        future: asyncio.Future[Any] | None = None,
    ) -> None:
        self.operation = operation
        self.request = request
        self.owner = owner
        self.sync = sync
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_withdrawn = False
        """Whether it must no longer wait for other processes."""
        self._unclaimed = Lock()

    def claim(self) -> bool:
        """Take the job, to run it or to withdraw it; only the first call succeeds. Thread-safe."""
        return self._unclaimed.acquire(blocking=False)

    def withdraw(self) -> None:
        """Withdraw the job unless it has begun; called on the event loop."""
        self.is_withdrawn = True
        if self.claim() and self.future is not None and not self.future.done():
            self.future.set_exception(StoreUnavailable(WITHDRAWN))

    def run(self, cursor: apsw.Cursor, lanes: LaneCache | None = None) -> None:
        """Drive the operation to its end; it must wait for its tables only."""
        self.error = None
        rows = (
            SqliteWholeStore(cursor, lanes) if self.owner is None else SqliteTables(cursor, self.owner, lanes)
        )
        steps: Generator[Any, Any, Any] = self.operation(rows, self.request).__await__()
        try:
            next(steps)
        except StopIteration as stop:
            self.result = stop.value
            return
        steps.close()
        raise RuntimeError(f"{self.operation!r} waited for something other than its tables")

    def outcome(self) -> Any:
        error, self.error = self.error, None
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error  # its traceback has this frame: a cycle


def check_unchanged(cursor: apsw.Cursor, path: str) -> None:
    """Raise StoreTooNew if a newer Turnledger has migrated the store since it was opened. Called in every
    transaction, unless no other connection has written since the last."""
    version = cursor.execute("PRAGMA user_version").get
    if version != VERSION:
        check_version(version, path)


class Writer:
    """Writes through one connection. Not thread-safe."""

    unforeseen = OutcomeUnknown

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._cursor = connection.cursor()
        self._execute = self._cursor.execute
        self._sync: Sync | None = None
        self._waiting: Sequence[Job] = ()
        """Jobs whose transaction waits for the lock of another process."""
        self._patience = Patience(lambda: not any(job.is_withdrawn for job in self._waiting))
        self._is_restart_due = False
        """Whether the log is used again from its beginning by the next write, which then syncs."""
        self._is_at_once = False
        self.hand_over: Callable[[Sequence[Job]], None] = lambda jobs: None
        """Called with jobs that failed before the rest of their batch has run."""
        connection.set_busy_handler(self._patience)
        connection.set_wal_hook(self._after_commit)
        self.files = OpenFiles(connection)
        self._has_reported_loss = False
        self.lanes = LaneCache()

    def run_at_once(self, job: Job) -> bool:
        """Run a job that need not survive power loss, if that takes no longer than the work itself: another
        process must not be writing, nor have written, so that the pages are in memory, and the log needs no
        sync. Return False if it must wait; then nothing was written."""
        if self._is_restart_due or self.data_version() != self.lanes.version:
            return False
        self._is_at_once = job.is_withdrawn = True  # do not wait for a lock
        try:
            self.run_batch((job,))
        finally:
            self._is_at_once = job.is_withdrawn = False
        return not isinstance(job.error, StoreUnavailable)

    def _after_commit(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Move the log into the database when it is long, as SQLite does by default, but never while the
        event loop waits."""
        self._is_restart_due = False
        if pages >= LOG_PAGES and not self._is_at_once:
            self._is_restart_due = True
            with suppress(apsw.Error):  # the commit has succeeded; the next one tries again
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return apsw.SQLITE_OK

    def run_batch(self, jobs: Sequence[Job]) -> None:
        """Run the jobs in order as one transaction; afterwards each has its result or error.

        A job that raises is rolled back alone. If the commit fails, all jobs fail, mostly with an unknown
        outcome: even a refusal may depend on the writes of another job. If a file of the store was removed or
        replaced, nothing is committed, and every job fails.
        """
        while jobs:
            jobs = self._begin(jobs)
            spoiler = self._transact(jobs) if jobs else None
            if spoiler is None or len(jobs) == 1:
                return
            # Rolled back together, the others run again without it. A savepoint around each job would copy
            # every page that it changes, for a rare case.
            self.run_batch(jobs[:spoiler])
            self.run_batch(jobs[spoiler : spoiler + 1])
            jobs = jobs[spoiler + 1 :]

    def _transact(self, jobs: Sequence[Job]) -> int | None:
        """Run the jobs and end the transaction. Return the place of the job that rolled back everything,
        because it raised after a write or because SQLite ended the transaction."""
        connection = self._connection
        start = connection.total_changes()
        for place, job in enumerate(jobs):
            before = connection.total_changes()
            try:
                job.run(self._cursor, self.lanes)
            except BaseException as problem:
                job.error = translate(problem, self._path)
                if connection.total_changes() != before or not connection.in_transaction:
                    self._try_to_roll_back()
                    return place
        if all(job.error is not None for job in jobs):
            # Nothing was written; a failing commit would only hide the errors.
            self._try_to_roll_back(has_written=False)
        elif self._sync is Sync.DISK and connection.total_changes() != start and self.files.find_lost():
            self._try_to_roll_back()
            self.files.save_log()
            for job in jobs:
                job.error = self.files.error()
        else:
            self._commit(jobs)
        return None

    def _begin(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Begin a transaction; return the jobs that are in it. While another process holds the lock,
        withdrawn jobs leave, and the others keep waiting."""
        while jobs:
            self._waiting = jobs
            try:
                if self._connection.in_transaction:  # left open by an earlier failure
                    self.lanes.clear()
                    self._roll_back()
                self._set_sync(jobs)
                if (self.files.lost and self.files.find_lost()) or (
                    self._sync is Sync.DISK and self.files.is_log_truncated()
                ):
                    raise self.files.error()
                self._execute("BEGIN IMMEDIATE")
                version = self.data_version()
                if version != self.lanes.version:
                    self.lanes.clear()
                    check_unchanged(self._cursor, self._path)
                    self.lanes.version = version
                return jobs
            except (apsw.Error, StoreTooNew, StoreUnavailable) as problem:
                self._try_to_roll_back()
                is_cut_short = isinstance(problem, apsw.BusyError) and self._patience.was_cut_short
                leaving = [job for job in jobs if job.is_withdrawn] if is_cut_short else jobs
                for job in leaving:
                    job.error = translate(problem, self._path)
                if is_cut_short and not self._is_at_once:
                    self.hand_over(leaving)  # their callers need not wait for the rest of the batch
                jobs = [job for job in jobs if job not in leaving]
            finally:
                self._waiting = ()
        return jobs

    def _set_sync(self, jobs: Sequence[Job]) -> None:
        """Make the commit wait for the disk if any of the jobs requires it."""
        sync = Sync.DISK if any(job.sync is Sync.DISK for job in jobs) else Sync.PROCESS
        if sync is not self._sync:
            self._execute("PRAGMA synchronous=FULL" if sync is Sync.DISK else "PRAGMA synchronous=NORMAL")
            self._sync = sync

    def _commit(self, jobs: Sequence[Job]) -> None:
        try:
            self._execute("COMMIT")
        except apsw.Error as problem:
            for job in jobs:
                job.error = commit_failure(problem, self._path)
            self._try_to_roll_back()

    def _try_to_roll_back(self, *, has_written: bool = True) -> None:
        if has_written:
            self.lanes.clear()  # even if SQLite has rolled back itself, as it does when the disk fails
        try:
            self._roll_back()
        except apsw.Error:
            # The next batch tries again before it begins, and reports a failure then.
            return

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._execute("ROLLBACK")

    def check_files(self) -> None:
        """Detect files that were removed, replaced or truncated, log it once, and save what can be saved."""
        has_reported, self._has_reported_loss = self._has_reported_loss, False
        if self.files.find_lost() or self.files.is_log_truncated():
            if not has_reported:
                logger.error("%s", self.files.error())
            self._has_reported_loss = True
            self.files.save_log()

    def data_version(self) -> int:
        """Return a number that changes when another connection has written, but not by writes of this one."""
        return int(self._cursor.execute("PRAGMA data_version").get)

    def close(self) -> None:
        self.files.close()


LOG_PAGES = 1_000
"""Pages of the log from which on it is moved into the database."""
LARGEST_BATCH = 256
"""Jobs per transaction: enough to share the sync, few enough that the first does not wait long."""


class BatchRunner(Protocol):
    """What a worker drives, one batch at a time. `unforeseen` is the error that callers get for its bugs."""

    @property
    def unforeseen(self) -> type[StoreError]: ...
    def run_batch(self, jobs: Sequence[Job]) -> None: ...
    def close(self) -> None: ...


class _Signal(Enum):
    WAKE = "wake"  # check the poll again
    STOP = "stop"  # finish queued jobs, then end


class StoreThread:
    """Owns a thread and the object it drives; hands results to the event loop, one call per batch. If the
    loop is closed before the worker was stopped, the thread calls `abandoned`, finishes queued jobs, and ends
    by itself.
    """

    def __init__(
        self,
        name: str,
        driven: BatchRunner,
        loop: asyncio.AbstractEventLoop,
        abandoned: Callable[[], None] = lambda: None,
    ) -> None:
        self._driven = driven
        self._loop = loop
        self._abandoned: Callable[[], None] | None = abandoned
        self._inbox: SimpleQueue[Job | _Signal] = SimpleQueue()
        self.submit: Callable[[Job], None] = self._inbox.put
        self._poll: Callable[[], None] | None = None
        self._poll_every: float | None = None
        self._polled_at = 0.0
        self._poll_fails = False
        self.is_free = Lock()
        """Held while the driven object is in use."""
        # A daemon, so that a program that forgets to close its ledger can still exit.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poll(self, poll: Callable[[], None], every: float) -> None:
        """Call `poll` on the thread, between batches, about every `every` seconds."""
        self._poll, self._poll_every = poll, every
        self._inbox.put(_Signal.WAKE)

    def run_here(self, job: Job, run: Callable[[Job], bool]) -> bool:
        """Run a job on the calling thread, if the driven object is free and no job is queued. Return whether
        it ran."""
        if not self._inbox.empty() or not self.is_free.acquire(blocking=False):
            return False
        try:
            return run(job)
        except BaseException as problem:
            self._fail((job,), problem)
            return True
        finally:
            self.is_free.release()

    def end(self) -> None:
        """Make the thread finish queued jobs, close the driven object, and end."""
        self._inbox.put(_Signal.STOP)

    def stop(self) -> None:
        """As `end`, but wait for it. Blocks."""
        self.end()
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            batch = [job for job in batch if job.claim()]  # the others were withdrawn
            if batch:
                with self.is_free:
                    self._run_batch(batch)
                self.hand_over(batch)
            self._poll_if_due()
            if self._abandoned is not None and self._loop.is_closed():
                abandoned, self._abandoned = self._abandoned, None
                abandoned()
                self.end()
        self._driven.close()

    def _run_batch(self, batch: Sequence[Job]) -> None:
        try:
            self._driven.run_batch(batch)
        except BaseException as problem:
            self._fail(batch, problem)

    def _fail(self, batch: Sequence[Job], problem: BaseException) -> None:
        """Handle a bug: waiting callers must get an error, and the thread must live for the others."""
        for job in batch:
            if job.error is None:
                job.error = self._driven.unforeseen(
                    f"The store failed in an unforeseen way: {problem!r}. This is a bug: please report it."
                )

    def _poll_if_due(self) -> None:
        if self._poll is None or self._poll_every is None:
            return
        now = time.monotonic()
        if now - self._polled_at < self._poll_every:
            return
        self._polled_at = now
        try:
            with self.is_free:
                self._poll()
            self._poll_fails = False
        except Exception:
            if not self._poll_fails and not self._loop.is_closed():  # log once, not at every poll
                logger.exception("looking for what other processes wrote failed")
            self._poll_fails = True

    def _next_batch(self) -> list[Job] | None:
        """Wait for jobs; return all queued ones, none when it is time to poll, None at the end."""
        inbox = self._inbox
        try:
            first = inbox.get(timeout=self._poll_every)
        except Empty:
            return []
        if not isinstance(first, Job):
            return None if first is _Signal.STOP else []
        batch = [first]
        while len(batch) < LARGEST_BATCH and not inbox.empty():
            more = inbox.get_nowait()
            if isinstance(more, Job):
                batch.append(more)
            else:
                inbox.put(more)  # after the jobs; none can follow STOP
                break
        return batch

    def hand_over(self, batch: Sequence[Job]) -> None:
        """Deliver the outcomes of these jobs to their callers; called on the thread."""
        try:
            self._loop.call_soon_threadsafe(_deliver, batch)
        except RuntimeError:
            # The loop was closed without closing the store: no caller is left.
            if count := sum(job.future is not None for job in batch):
                logger.warning("results of %d operations came after the event loop was closed", count)


def _deliver(batch: Sequence[Job]) -> None:
    for job in batch:
        future, job.future = job.future, None  # the future refers to its job: a cycle
        if future is None:
            if job.error is not None and not job.is_withdrawn:
                logger.warning("a write that nobody waits for failed: %s", job.error)
        elif not future.done():  # its caller may have been cancelled
            if job.error is None:
                future.set_result(job.result)
            else:
                _fail(future, job.error)
        # An error's traceback has the frame in which the job ran: another cycle.
        job.error = job.result = None


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    try:
        future.set_exception(error)
    except TypeError:  # a StopIteration; it must not affect the rest of the batch
        failure = RuntimeError(f"an operation raised {error!r}, which no future can hold")
        failure.__cause__ = error
        future.set_exception(failure)


class SqliteReader:
    """Reads through one connection. Not thread-safe."""

    unforeseen = StoreError

    def __init__(self, connection: apsw.Connection, path: str, watched: OpenFiles | None = None) -> None:
        """`watched` are the files of the writer, which checks them regularly."""
        self._connection = connection
        self._path = path
        self._files = OpenFiles(connection)
        self._watched = watched or self._files
        self._cursor = connection.cursor()

    def run_batch(self, jobs: Sequence[Job]) -> None:
        """Run the jobs on one snapshot, taken after the last of them was requested."""
        try:
            self._end()  # an earlier failure may have left a transaction open
            if self._watched.lost:
                raise self._watched.error()
            self._cursor.execute("BEGIN")
            check_unchanged(self._cursor, self._path)
            for job in jobs:
                self._run(job)
            self._end()
        except (apsw.Error, StoreTooNew, StoreUnavailable) as problem:
            for job in jobs:
                job.error = translate(problem, self._path)

    def _run(self, job: Job) -> None:
        try:
            job.run(self._cursor)
        except BaseException as problem:
            job.error = translate(problem, self._path)

    def _end(self) -> None:
        # A failed read may have ended the transaction itself.
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def close(self) -> None:
        self._files.close()
