"""PostgresStore: the engine's Store in a PostgreSQL database that several machines share.

Every write holds the row of its owner until it commits: a turn together with other turns, as one statement
(`tables/guarded_statement.py`), anything else alone. So operations of one owner see nothing of each other
half done, and need no retries. What concerns all owners holds the row of the store. Statements read the
newest state (READ COMMITTED): nobody else can change it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from turnledger.engine.attempt.dead_process import end_lease
from turnledger.engine.feed import newest_position
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.lane.shield import Home, uninterrupted
from turnledger.engine.ports import (
    InspectOperation,
    Operation,
    Request,
    Result,
    Sync,
    WholeOperation,
)
from turnledger.errors import LedgerClosed, OutcomeUnknown, StoreTooNew, StoreUnavailable
from turnledger.model.ids import ConversationId, LeaseId
from turnledger.stores.postgresql import connections
from turnledger.stores.postgresql.connections import DatabaseSettings
from turnledger.stores.postgresql.examination import check_exists
from turnledger.stores.postgresql.failures import (
    FAILED,
    REPEATED,
    TAKEN,
    code_of,
    commit_failure,
    connect_failure,
    is_lost,
    translate,
)
from turnledger.stores.postgresql.leases import LeaseThread
from turnledger.stores.postgresql.migrations import check_unchanged, migrate
from turnledger.stores.postgresql.notices import NEWEST, Notices
from turnledger.stores.postgresql.pool import ConnectionPool, OwnerGate
from turnledger.stores.postgresql.tables.guarded_statement import (
    Guess,
    GuessedTables,
    Memory,
    OutdatedGuess,
    WrongGuess,
)
from turnledger.stores.postgresql.tables.queries import Transaction
from turnledger.stores.postgresql.tables.tables import MARK, EpochOver
from turnledger.stores.postgresql.tables.whole import PostgresWholeStore

if TYPE_CHECKING:
    from turnledger.stores.postgresql.connections import AnyConnection


logger = logging.getLogger(__name__)

TRIES = 5
"""How often a transaction is run that the server rolled back for the sake of another."""
GUESSES = 2
"""How often an operation is sent as one statement: the second time without what was remembered wrongly."""
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


AnyOperation: TypeAlias = Callable[[Any], Awaitable[Any]]
"""On the rows of an owner, or of all."""


class PostgresStore:
    """The connections of one process. Made by `open`, and used on that event loop."""

    def __init__(self, settings: DatabaseSettings, pool: ConnectionPool) -> None:
        self._settings = settings
        self._pool = pool
        self._home = Home()
        self._home.check()
        self._loop = asyncio.get_running_loop()
        self._running = 0
        """Operations under way."""
        self._finished: asyncio.Future[None] | None = None
        """Set while the store is closed, until none are."""
        self._notices = Notices(settings)
        self._memory = Memory()
        # A frozen machine may hold the row of an owner: those who wait for it leave connections for others.
        self._gate = OwnerGate(settings.pool // 2)
        self._lease: LeaseId | None = None
        self._keeper: LeaseThread | None = None
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, url: str) -> PostgresStore:
        """Connect to the database of the URL; create or migrate its tables if needed. Raises NotAStore,
        StoreTooNew, StoreReadOnly or StoreUnavailable."""

        async def prepare(connection: AnyConnection, settings: DatabaseSettings) -> None:
            connections.check_server(connection, settings)
            await migrate(connection)

        store = await cls._open(url, prepare)
        try:
            await store.read_whole(newest_position, None)  # begins an epoch if that is due
        except BaseException:
            await store.close()
            raise
        return store

    @classmethod
    async def open_read_only(cls, url: str) -> PostgresStore:
        """Connect for reading only, without a lease; raises NotAStore if the tables are not there."""
        return await cls._open(url, check_exists)

    @classmethod
    async def _open(
        cls, url: str, prepare: Callable[[AnyConnection, DatabaseSettings], Awaitable[None]]
    ) -> PostgresStore:
        settings = connections.settings_of(url)
        pool = ConnectionPool(settings)
        try:
            connection = await pool.acquire()
        except BaseException as error:
            await pool.close()
            raise connect_failure(error, settings.place) from error
        try:
            await prepare(connection, settings)
        except BaseException as error:
            connection.terminate()
            pool.release(connection)
            await pool.close()
            raise translate(error, settings.place) from error
        pool.release(connection)
        return cls(settings, pool)

    async def transact(
        self,
        operation: Operation[Request, Result],
        request: Request,
        owner: str,
        sync: Sync = Sync.DISK,
        about: ConversationId | None = None,
    ) -> Result:
        """Run a writing operation atomically. See `Store.transact`."""
        return cast(Result, await self._write(lambda tables: operation(tables, request), owner, sync))

    async def transact_whole(
        self, operation: WholeOperation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        """As `transact`, on the rows of all owners."""
        return cast(Result, await self._write(lambda whole: operation(whole, request), None, sync))

    async def _write(self, operation: AnyOperation, owner: str | None, sync: Sync) -> Any:
        """Run to the end, even if the caller is cancelled: it waits for the end."""
        self._enter()
        try:
            return await uninterrupted(self._persist(operation, owner, sync))
        except BaseException as error:
            raise await self._explain(error)  # noqa: B904 - it has its cause
        finally:
            self._leave()

    async def _persist(self, operation: AnyOperation, owner: str | None, sync: Sync) -> Any:
        await self._gate.enter(owner)
        try:
            for _ in range(GUESSES):
                if owner is None:
                    break
                try:
                    return await self._guess(operation, owner, sync)
                except OutdatedGuess:
                    continue
                except WrongGuess:
                    break
            # In a task of its own: what it awaits may use cancellations.
            alone = self._persist_alone(operation, owner, sync)
            return await self._loop.create_task(alone, name="turnledger-write")
        finally:
            self._gate.leave(owner)

    async def _persist_alone(self, operation: AnyOperation, owner: str | None, sync: Sync) -> Any:
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._in_epoch(lambda: self._try(operation, owner, sync))
            except Exception as error:
                if code_of(error) not in REPEATED or not tries_left:
                    raise
        raise AssertionError  # the last try returns or raises

    async def _in_epoch(self, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run something that may read positions of changes; begin a new epoch for them if that is due."""
        try:
            return await run()
        except EpochOver:
            await self._try(lambda whole: whole.begin_epoch(os.urandom(MARK)), None, Sync.DISK)
            return await run()

    async def _guess(self, operation: AnyOperation, owner: str, sync: Sync) -> Any:
        """Run an operation as one statement."""
        connection = await self._pool.acquire()
        try:
            tables = GuessedTables(Guess(connection, owner, sync), owner, self._memory)
            try:
                result = await operation(tables)
            except FAILED:
                raise
            except Exception as error:  # it may have failed because of what is out of date
                raise WrongGuess from error
            try:
                await tables.carry_out()
            except FAILED as error:
                if is_lost(error):
                    raise commit_failure(error, self._settings.place) from error
                if code_of(error) in (*REPEATED, TAKEN):
                    raise WrongGuess from error
                raise
        finally:
            self._pool.release(connection)
        self._notices.send()
        return result

    async def _try(self, operation: AnyOperation, owner: str | None, sync: Sync) -> Any:
        connection = await self._pool.acquire()
        try:
            transaction = Transaction(connection, writes=True)
            whole = PostgresWholeStore(transaction)
            try:
                await transaction.begin(owner, sync)
                result = await operation(whole if owner is None else whole.of(owner))
                await transaction.flush()
            except BaseException:
                await self._roll_back(connection)
                raise
            try:
                await connection.execute("COMMIT")
            except BaseException as error:
                raise commit_failure(error, self._settings.place) from error
        finally:
            self._pool.release(connection)
        self._notices.send()
        return result

    async def _roll_back(self, connection: AnyConnection) -> None:
        """Roll back; where that cannot be done, the server does it when the connection is gone."""
        try:
            if not connection.is_closed():
                await connection.execute("ROLLBACK", timeout=self._settings.wait)
        except FAILED:
            connection.terminate()

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        """Run a reading operation on one snapshot that includes all acknowledged writes."""
        return cast(Result, await self._read(lambda whole: operation(whole.of(owner), request)))

    async def read_whole(self, operation: WholeOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._read(lambda whole: operation(whole, request)))

    async def inspect(self, operation: InspectOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._read(lambda whole: operation(whole, request)))

    async def _read(self, operation: AnyOperation) -> Any:
        self._enter()
        try:
            return await self._in_epoch(lambda: self._read_once(operation))
        except BaseException as error:
            raise await self._explain(error) from error
        finally:
            self._leave()

    async def _explain(self, error: BaseException) -> BaseException:
        """Return the error to raise: statements of an older version may fail in any way."""
        failure = translate(error, self._settings.place)
        is_odd = isinstance(error, FAILED) and not isinstance(failure, StoreUnavailable | OutcomeUnknown)
        if is_odd:
            try:
                connection = await self._pool.acquire()
                try:
                    _, self._notices.version = await connection.fetchrow(NEWEST)
                finally:
                    self._pool.release(connection)
                check_unchanged(self._notices.version, self._settings.place)
            except StoreTooNew as newer:
                return newer
            except FAILED:
                pass
        return failure

    async def _read_once(self, operation: AnyOperation) -> Any:
        connection = await self._pool.acquire()
        try:
            await connection.execute(BEGIN_READ)
            try:
                return await operation(PostgresWholeStore(Transaction(connection, writes=False)))
            finally:
                await self._roll_back(connection)
        finally:
            self._pool.release(connection)

    def _enter(self) -> None:
        """Begin an operation: one may need several connections, one after the other."""
        self._home.check()
        if self._closing is not None:
            raise LedgerClosed
        check_unchanged(self._notices.version, self._settings.place)
        self._running += 1

    def _leave(self) -> None:
        self._running -= 1
        if not self._running and self._finished is not None:
            self._finished.set_result(None)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the loop soon after any process wrote."""
        self._notices.watch(changed)

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        """Take the lease and renew it from a thread, with a connection of its own, until closed."""
        self._lease = id
        await self.transact_whole(renew, id)
        self._keeper = LeaseThread(self._settings, id, every)

    def is_holder_dead(self, id: LeaseId) -> bool:
        """Return False: machines know of each other only by their beats."""
        return False

    async def close(self) -> None:
        """Finish operations under way, end the lease, close the connections."""
        self._home.check()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.stop)
        if self._running:
            self._finished = self._loop.create_future()
            await self._finished
        try:
            if self._lease is not None:
                await self._end_lease(self._lease)
        finally:
            await self._notices.close()
            await self._pool.close()

    async def _end_lease(self, lease: LeaseId) -> None:
        try:
            await self._persist(lambda whole: end_lease(whole, lease), None, Sync.PROCESS)
        except BaseException as error:
            failure = translate(error, self._settings.place)
            if not isinstance(failure, StoreUnavailable | OutcomeUnknown):
                raise failure from error
            logger.warning("the lease was not ended, and lapses by itself: %s", failure)
