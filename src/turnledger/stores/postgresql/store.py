"""PostgresStore: the engine's Store in a PostgreSQL database that several machines share.

Every write holds the row of its owner until it commits: a turn together with other turns, as one statement
(see `tables/guess.py`), anything else alone. So operations of one owner see nothing of each other half done,
and need no retries. What concerns all owners holds the row of the store. Statements read the newest state
(READ COMMITTED): nobody else can change it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakValueDictionary

import asyncpg

from turnledger.engine.attempt.dead_process import end_lease
from turnledger.engine.feed import newest_position
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.lane.shield import Home, Unstoppable
from turnledger.engine.ports import (
    InspectOperation,
    Operation,
    Request,
    Result,
    Sync,
    WholeOperation,
)
from turnledger.errors import LedgerClosed, StoreUnavailable
from turnledger.model.ids import ConversationId, LeaseId
from turnledger.stores.postgresql import connections
from turnledger.stores.postgresql.connections import Connector, DatabaseSettings
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
from turnledger.stores.postgresql.migrations import migrate
from turnledger.stores.postgresql.notices import Notices
from turnledger.stores.postgresql.tables.guess import Guess, GuessedTables, Memory, OutdatedGuess, WrongGuess
from turnledger.stores.postgresql.tables.queries import Transaction
from turnledger.stores.postgresql.tables.tables import MARK, EpochOver
from turnledger.stores.postgresql.tables.whole import PostgresWholeStore

if TYPE_CHECKING:
    from asyncpg import Pool

    from turnledger.stores.postgresql.connections import AnyConnection


logger = logging.getLogger(__name__)

TRIES = 5
"""How often a transaction is run that the server rolled back for the sake of another."""
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


AnyOperation: TypeAlias = Callable[[Any], Awaitable[Any]]
"""On the rows of an owner, or of all."""


class PostgresStore:
    """The connections of one process. Made by `open`, and used on that event loop."""

    def __init__(self, settings: DatabaseSettings, connector: Connector, pool: Pool[Any]) -> None:
        self._settings = settings
        self._connector = connector
        self._pool = pool
        self._home = Home()
        self._home.check()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._notices = Notices(settings)
        self._memory = Memory()
        self._gates: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()
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
    async def visit(cls, url: str) -> PostgresStore:
        """Connect for reading only, without a lease; raises NotAStore if the tables are not there."""
        return await cls._open(url, check_exists)

    @classmethod
    async def _open(
        cls, url: str, prepare: Callable[[AnyConnection, DatabaseSettings], Awaitable[None]]
    ) -> PostgresStore:
        settings = connections.settings_of(url)
        try:
            connection = await connections.connect(settings)
        except BaseException as error:
            raise connect_failure(error, settings.place) from error
        try:
            await prepare(connection, settings)
        except BaseException as error:
            raise translate(error, settings.place) from error
        finally:
            connection.terminate()
        connector = Connector(settings)
        pool = await connections.open_pool(settings, connector)
        return cls(settings, connector, pool)

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
        """Run in a task of its own, to the end, even if the caller is cancelled: it waits for the end."""
        self._check_open()
        outcome = Unstoppable(loop=self._loop)
        task = self._loop.create_task(self._finish(operation, owner, sync, outcome), name="turnledger-write")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await outcome
        finally:
            del outcome, task  # an error in them has this frame in its traceback: a cycle

    async def _finish(
        self, operation: AnyOperation, owner: str | None, sync: Sync, outcome: Unstoppable
    ) -> None:
        try:
            result = await self._persist(operation, owner, sync)
        except BaseException as error:
            outcome.set_exception(translate(error, self._settings.place))
            del outcome
        else:
            outcome.set_result(result)

    async def _persist(self, operation: AnyOperation, owner: str | None, sync: Sync) -> Any:
        # A frozen machine may hold the row of an owner: those who wait for it leave connections for others.
        gate = self._gates.setdefault(owner, asyncio.Semaphore(self._settings.pool // 2))
        async with gate:
            if owner is not None:
                try:
                    return await self._guess_twice(operation, owner, sync)
                except WrongGuess:
                    pass
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

    async def _guess_twice(self, operation: AnyOperation, owner: str, sync: Sync) -> Any:
        """Run an operation as one statement, the second time without what was remembered wrongly."""
        try:
            return await self._guess(operation, owner, sync)
        except OutdatedGuess:
            return await self._guess(operation, owner, sync)

    async def _guess(self, operation: AnyOperation, owner: str, sync: Sync) -> Any:
        async with self._connection() as connection:
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
        self._notices.send()
        return result

    async def _try(self, operation: AnyOperation, owner: str | None, sync: Sync) -> Any:
        async with self._connection() as connection:
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
        self._notices.send()
        return result

    async def _roll_back(self, connection: AnyConnection) -> None:
        """Roll back; where that cannot be done, the server does it when the connection is gone."""
        try:
            if not connection.is_closed():
                await connection.execute("ROLLBACK", timeout=self._settings.wait)
        except FAILED:
            with suppress(asyncpg.InterfaceError):  # the pool has noticed that it is gone
                connection.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AnyConnection]:
        wait = self._settings.wait
        try:
            connection = await self._pool.acquire(timeout=wait)
        except TimeoutError:
            raise TimeoutError(f"no connection within {wait:g} seconds") from None
        try:
            yield connection
        finally:
            with suppress(*FAILED):  # one that is gone must not hide why, least of all a cancellation
                await self._pool.release(connection)

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        """Run a reading operation on one snapshot that includes all acknowledged writes."""
        return cast(Result, await self._read(lambda whole: operation(whole.of(owner), request)))

    async def read_whole(self, operation: WholeOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._read(lambda whole: operation(whole, request)))

    async def inspect(self, operation: InspectOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self._read(lambda whole: operation(whole, request)))

    async def _read(self, operation: AnyOperation) -> Any:
        self._check_open()
        try:
            return await self._in_epoch(lambda: self._read_once(operation))
        except BaseException as error:
            raise translate(error, self._settings.place) from error

    async def _read_once(self, operation: AnyOperation) -> Any:
        async with self._connection() as connection:
            await connection.execute(BEGIN_READ)
            try:
                return await operation(PostgresWholeStore(Transaction(connection, writes=False)))
            finally:
                await self._roll_back(connection)

    def _check_open(self) -> None:
        self._home.check()
        if self._closing is not None:
            raise LedgerClosed

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
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
        lease = self._lease
        if lease is not None:
            try:
                await self._persist(lambda whole: end_lease(whole, lease), None, Sync.PROCESS)
            except BaseException as error:
                failure = translate(error, self._settings.place)
                if not isinstance(failure, StoreUnavailable):
                    raise failure from error
                logger.warning("the lease was not ended, and lapses by itself: %s", failure)
        await self._notices.close()
        await self._connector.close()
        await self._pool.close()
