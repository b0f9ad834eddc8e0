"""SqliteStore: the engine's Store in one SQLite file."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from os import PathLike, fsdecode
from typing import Any, cast

import apsw

from turnledger.engine.attempt.dead_process import end_lease
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.lane.shield import Home, Unstoppable, is_cancelled
from turnledger.engine.ports import (
    InspectOperation,
    Operation,
    Request,
    Result,
    Sync,
    WholeOperation,
    WholeStore,
)
from turnledger.errors import LedgerClosed
from turnledger.model.ids import ConversationId, LeaseId
from turnledger.stores.sqlite import connections, files
from turnledger.stores.sqlite.failures import translate
from turnledger.stores.sqlite.leases import LeaseKeeper, LockFiles
from turnledger.stores.sqlite.threads import Job, SqliteReader, StoreThread, Writer

logger = logging.getLogger(__name__)

WATCH_EVERY = 0.03
"""Seconds between checks for writes of other processes."""


class SqliteStore:
    """The connection of one process to a SQLite file that several may share. Made by `open`, and used on that
    event loop.

    All writes of a process go through one connection, in batches that share a transaction and its sync; reads
    go through another in parallel. An inline store has no threads and no lock files: every operation runs
    within the call, which blocks, and so is deterministic.
    """

    def __init__(
        self, path: str, writer: Writer, reader: SqliteReader, version: int, *, inline: bool
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._path = path
        self._home = Home()
        self._home.check()
        files.note_open(path)
        self._loop = asyncio.get_running_loop()
        self._write_worker = (
            None if inline else StoreThread("turnledger-writer", writer, self._loop, self._on_abandoned)
        )
        if self._write_worker is not None:
            writer.hand_over = self._write_worker.hand_over
        self._read_worker = None if inline else StoreThread("turnledger-reader", reader, self._loop)
        self._lock_files = None if inline else LockFiles(path)
        self._lease: LeaseId | None = None
        self._keeper: LeaseKeeper | None = None
        self._watchers: list[Callable[[], None]] = []
        self._seen_version = version
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        inline: bool = False,
        vfs: str | None = None,
        page_bytes: int | None = None,
        secure_delete: bool = False,
    ) -> SqliteStore:
        """Open the store in this file; create or migrate it if needed. `page_bytes` bounds the page cache.
        `secure_delete` overwrites deleted data. `vfs` is the SQLite VFS to use; for tests.

        Raises UnsafeSqlite, NotAStore, StoreTooNew, StoreReadOnly, StoreCorrupt, StoreFull or
        StoreUnavailable, and LedgerElsewhere in a forked process whose parent has it open; then the file is
        unchanged.
        """
        name = fsdecode(path)
        opened = (
            _open(name, vfs, page_bytes, secure_delete)
            if inline
            else await asyncio.to_thread(_open, name, vfs, page_bytes, secure_delete)
        )
        return cls(*opened, inline=inline)

    async def transact(
        self,
        operation: Operation[Request, Result],
        request: Request,
        owner: str,
        sync: Sync = Sync.DISK,
        about: ConversationId | None = None,
    ) -> Result:
        """Run a writing operation atomically. See `Store.transact`.

        When the caller is cancelled, a queued operation still runs, unless the writer cannot start it within
        the grace time: then it is withdrawn with StoreUnavailable, and nothing was written.
        """
        job = Job(operation, request, owner, sync)
        try:
            if about is not None and sync is Sync.PROCESS and self._runs_at_once(job, about):
                return cast(Result, job.outcome())
            return cast(Result, await self._write(job))
        finally:
            del job  # an error in it has this frame in its traceback: a cycle

    def _runs_at_once(self, job: Job, about: ConversationId) -> bool:
        """Run a job on the event loop, if its pages are in memory and nothing is in the way: handing it to
        the thread and back would take longer than the job."""
        worker, writer = self._write_worker, self._writer
        if worker is None or self._closing is not None or not writer.lanes.holds(about):
            return False
        self._home.check()
        return worker.run_here(job, writer.run_at_once)

    async def transact_whole(
        self, operation: WholeOperation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        """As `transact`, on the rows of all owners."""
        return cast(Result, await self._write(Job(operation, request, None, sync)))

    async def _write(self, job: Job) -> Any:
        self._home.check()
        if self._closing is not None:
            raise LedgerClosed
        if self._write_worker is None:
            return _inline(self._writer, job)
        job.future = future = Unstoppable(loop=self._loop)
        future.withdraw = job.withdraw
        if is_cancelled():
            future.cancel()
        self._write_worker.submit(job)
        try:
            return await future
        finally:
            # They refer to each other, and an error in them has this frame in its traceback: cycles that
            # would keep the request until the next garbage collection.
            future.withdraw = None
            del future, job

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        """Run a reading operation on one snapshot that includes all acknowledged writes."""
        return cast(Result, await self._read(Job(operation, request, owner)))

    async def read_whole(self, operation: WholeOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._read(Job(operation, request)))

    async def inspect(self, operation: InspectOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._read(Job(operation, request)))

    async def _read(self, job: Job) -> Any:
        self._home.check()
        if self._closing is not None:
            raise LedgerClosed
        if self._read_worker is None:
            return _inline(self._reader, job)
        job.future = future = self._loop.create_future()
        self._read_worker.submit(job)
        try:
            return await future
        finally:
            del future, job

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the loop soon after another process wrote, never for writes of this one. An
        inline store never calls it."""
        self._watchers.append(changed)
        if self._write_worker is not None and len(self._watchers) == 1:
            # On the writer's connection, where only writes of others change the number.
            self._write_worker.poll(self._poll_changes, WATCH_EVERY)

    def _poll_changes(self) -> None:
        try:
            self._writer.check_files()
            version = self._writer.data_version()
        except apsw.Error:
            return  # another process is in the way; the next check comes soon
        if self._seen_version != version:
            for changed in tuple(self._watchers):
                self._loop.call_soon_threadsafe(changed)
        self._seen_version = version

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        """Take the lease and renew it from a thread until the store is closed. The lock file comes first, so
        that other processes detect a death at once. An inline store beats once; its driver renews."""
        if self._lock_files is not None:
            await asyncio.to_thread(self._lock_files.take, id)
        self._lease = id
        # Synced, and the log with it: SQLite may have recovered a commit that a killed process left unsynced,
        # and from now on it is served as done.
        living = await self.transact_whole(_first_beat, id)
        if self._write_worker is not None and self._lock_files is not None:
            await asyncio.to_thread(self._lock_files.sweep, living)
            submit = self._write_worker.submit
            self._keeper = LeaseKeeper(lambda: submit(Job(renew, id, sync=Sync.PROCESS)), every)

    def is_holder_dead(self, id: LeaseId) -> bool:
        """Return whether the lock file of this lease exists and is unlocked. False without one: that of a
        process on another machine or of another user may be invisible."""
        return self._lock_files is not None and self._lock_files.is_unlocked(id)

    async def close(self) -> None:
        """Finish operations under way, end the lease, stop the threads. A second call waits for the first."""
        self._home.check()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._write_worker is None or self._read_worker is None:
            if self._lease is not None:
                self._writer.run_batch([Job(end_lease, self._lease, sync=Sync.PROCESS)])
            self._reader.close()
            self._writer.close()
        elif threading.main_thread().is_alive():
            await asyncio.to_thread(self._stop_threads, self._write_worker, self._read_worker)
        else:  # the interpreter shuts down, and its executors take no more work
            self._stop_threads(self._write_worker, self._read_worker)
        files.note_closed(self._path)

    def _stop_threads(self, write_worker: StoreThread, read_worker: StoreThread) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        if self._lease is not None:
            write_worker.submit(Job(end_lease, self._lease, sync=Sync.PROCESS))
        read_worker.stop()
        write_worker.stop()
        if self._lock_files is not None:
            self._lock_files.release()

    def _on_abandoned(self) -> None:
        """End the lease and the other threads after the loop was closed with all its tasks. Called on the
        writer's thread, which then ends."""
        if self._closing is not None or self._write_worker is None:
            return
        if self._keeper is not None:
            self._keeper.stop()
        if self._lease is not None:
            self._write_worker.submit(Job(end_lease, self._lease, sync=Sync.PROCESS))
        if self._read_worker is not None:
            self._read_worker.end()
        if self._lock_files is not None:
            self._lock_files.release()
        files.note_closed(self._path)


def _open(
    path: str, vfs: str | None, page_bytes: int | None, secure_delete: bool
) -> tuple[str, Writer, SqliteReader, int]:
    connections.check_sqlite(apsw.sqlite_lib_version())
    files.check_not_inherited(files.check_place(path))
    place = connections.prepare(path, vfs)
    if kind := files.network_filesystem(place.parent):
        logger.warning("%s is on %s: use it from one machine only, or move it to a local disk", path, kind)
    try:
        connection = connections.connect_writer(path, vfs, page_bytes)
        writer = Writer(connection, path)
        try:
            if secure_delete:
                connections.delete_securely(connection)
            # From here on, writes of others are noticed.
            version = writer.data_version()
            return (
                str(place),
                writer,
                SqliteReader(connections.connect_reader(path, vfs), path, writer.files),
                version,
            )
        except BaseException:
            writer.close()
            raise
    except apsw.Error as problem:
        raise translate(problem, path) from problem


def _inline(driven: Writer | SqliteReader, job: Job) -> Any:
    driven.run_batch([job])
    return job.outcome()


async def _first_beat(whole: WholeStore, id: LeaseId) -> set[LeaseId]:
    await whole.beat(id)
    return {lease.id for lease in await whole.leases()}
