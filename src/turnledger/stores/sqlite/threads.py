"""A thread that drives the writer or the reader: whatever is queued while it works is its next batch.

The reader: runs reading operations beside the writer, on a connection that cannot write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from enum import Enum
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

import apsw

from turnledger.errors import StoreError, StoreTooNew, StoreUnavailable
from turnledger.stores.sqlite.failures import translated
from turnledger.stores.sqlite.file_watch import OpenFiles
from turnledger.stores.sqlite.migrations import check_still_known
from turnledger.stores.sqlite.writer import Job

LARGEST_BATCH = 256
"""Jobs per transaction: the share of the sync that each pays is small by then, and the first still waits
for the last."""

logger = logging.getLogger(__name__)


class Driven(Protocol):
    """What a worker drives. `unforeseen` is what its bugs mean to whoever waits."""

    @property
    def unforeseen(self) -> type[StoreError]: ...
    def run_batch(self, jobs: Sequence[Job]) -> None: ...
    def close(self) -> None: ...


class _Signal(Enum):
    WAKE = "wake"  # look at the poll again
    STOP = "stop"  # finish what is queued, then end


class StoreThread:
    """Owns a thread and what it drives; hands results to the event loop, one call per batch.

    When the loop is closed before the worker was stopped, the thread calls `abandoned`, finishes what is
    queued, and ends by itself.
    """

    def __init__(
        self,
        name: str,
        driven: Driven,
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
        # A daemon: a program that forgets to close its ledger must still be able to exit.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poll(self, poll: Callable[[], None], every: float) -> None:
        """Have `poll` called on the thread, between batches, about every so many seconds."""
        self._poll, self._poll_every = poll, every
        self._inbox.put(_Signal.WAKE)

    def end(self) -> None:
        """Have the thread finish what is queued, close what is driven, and end."""
        self._inbox.put(_Signal.STOP)

    def stop(self) -> None:
        """As `end`, and wait for it. Blocks."""
        self.end()
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            batch = [job for job in batch if job.claim()]  # the others were withdrawn meanwhile
            if batch:
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
            # A bug. Whoever waits must hear of it, and the thread must live for the others.
            for job in batch:
                if job.error is None:
                    job.error = self._driven.unforeseen(
                        f"The store failed in an unforeseen way: {problem!r}."
                    )

    def _poll_if_due(self) -> None:
        if self._poll is None or self._poll_every is None:
            return
        now = time.monotonic()
        if now - self._polled_at < self._poll_every:
            return
        self._polled_at = now
        try:
            self._poll()
            self._poll_fails = False
        except Exception:
            if not self._poll_fails and not self._loop.is_closed():  # said once, not at every poll
                logger.exception("looking for what other processes wrote failed")
            self._poll_fails = True

    def _next_batch(self) -> list[Job] | None:
        """Wait for work; return all there is of it, nothing when it is time to poll, None at the end."""
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
                inbox.put(more)  # behind the jobs, where there can be none after STOP
                break
        return batch

    def hand_over(self, batch: Sequence[Job]) -> None:
        """Give their callers what came of these jobs; called on the thread."""
        try:
            self._loop.call_soon_threadsafe(_deliver, batch)
        except RuntimeError:
            # The loop was closed without closing the store: nobody is left to hear it.
            if count := sum(job.future is not None for job in batch):
                logger.warning("results of %d operations came after the event loop was closed", count)


def _deliver(batch: Sequence[Job]) -> None:
    for job in batch:
        future, job.future = job.future, None  # the future knows its job, too
        if future is None:
            if job.error is not None and not job.is_withdrawn:
                logger.warning("a write that nobody waits for failed: %s", job.error)
        elif not future.done():  # its caller may have been cancelled
            if job.error is None:
                future.set_result(job.result)
            else:
                _fail(future, job.error)
        # An error has the frame in its traceback in which the job ran: the two would keep each other.
        job.error = job.result = None


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    try:
        future.set_exception(error)
    except TypeError:  # a StopIteration; the rest of the batch must not suffer for it
        failure = RuntimeError(f"an operation raised {error!r}, which no future can hold")
        failure.__cause__ = error
        future.set_exception(failure)


class SqliteReader:
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
