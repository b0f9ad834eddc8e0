"""MemoryStore: the engine's Store in dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context

from turnledger.engine.attempt.dead_process import end_lease
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.lane.shield import Home
from turnledger.engine.ports import InspectOperation, Operation, Request, Result, Sync, WholeOperation
from turnledger.errors import LedgerClosed
from turnledger.model.ids import ConversationId, LeaseId
from turnledger.stores.memory.database import Database, UndoLog
from turnledger.stores.memory.whole import MemoryWholeStore


class MemoryStore:
    """The connection of one process to a database in memory."""

    def __init__(self, database: Database | None = None) -> None:
        self._db = Database() if database is None else database
        self._lease: LeaseId | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False
        self._home = Home()

    async def transact(
        self,
        operation: Operation[Request, Result],
        request: Request,
        owner: str,
        sync: Sync = Sync.DISK,
        about: ConversationId | None = None,
    ) -> Result:
        return await self._run(lambda whole: operation(whole.of(owner), request), sync)

    async def transact_whole(
        self, operation: WholeOperation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        return await self._run(lambda whole: operation(whole, request), sync)

    async def _run(self, operation: Callable[[MemoryWholeStore], Awaitable[Result]], sync: Sync) -> Result:
        log = UndoLog()
        try:
            result = await operation(self._whole(log))
        except BaseException:
            log.undo()
            raise
        if log.has_written:
            self._notify_others()
        return result

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        return await operation(self._whole(UndoLog()).of(owner), request)

    async def read_whole(self, operation: WholeOperation[Request, Result], request: Request) -> Result:
        return await operation(self._whole(UndoLog()), request)

    async def inspect(self, operation: InspectOperation[Request, Result], request: Request) -> Result:
        return await operation(self._whole(UndoLog()), request)

    def _whole(self, log: UndoLog) -> MemoryWholeStore:
        self._home.check()
        if self._closed:
            raise LedgerClosed
        return MemoryWholeStore(self._db, log)

    def _notify_others(self) -> None:
        for store, changed, context in self._db.watchers:
            if store is not self:
                asyncio.get_running_loop().call_soon(changed, context=context)

    def watch(self, changed: Callable[[], None]) -> None:
        self._db.watchers.append((self, changed, copy_context()))

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        self._lease = id
        await self.transact_whole(renew, id)
        self._keeper = asyncio.create_task(self._renew(id, every))

    async def _renew(self, id: LeaseId, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await self.transact_whole(renew, id)

    def is_holder_dead(self, id: LeaseId) -> bool:
        return False

    async def close(self) -> None:
        self._home.check()
        if self._closed:
            return
        if self._keeper is not None:
            self._keeper.cancel()
        if self._lease is not None:
            await self.transact_whole(end_lease, self._lease)
        self._db.watchers[:] = [each for each in self._db.watchers if each[0] is not self]
        self._closed = True
