"""A store around another one. A subclass overrides `write` or `look`, through which all operations go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias, cast

from turnledger.engine.ports import (
    InspectOperation,
    Operation,
    Request,
    Result,
    Store,
    Sync,
    WholeOperation,
)
from turnledger.model.ids import ConversationId, LeaseId

AnyOperation: TypeAlias = Callable[[Any, Any], Awaitable[Any]]


class Write(NamedTuple):
    """The run of a writing operation, on the rows of an owner or of all (None)."""

    operation: AnyOperation
    request: Any
    owner: str | None
    sync: Sync = Sync.DISK
    about: ConversationId | None = None


class WrappedStore:
    def __init__(self, store: Store) -> None:
        self.inner = store

    async def write(self, write: Write) -> Any:
        operation, request, owner, sync, about = write
        if owner is None:
            return await self.inner.transact_whole(operation, request, sync)
        return await self.inner.transact(operation, request, owner, sync, about)

    async def look(self, operation: AnyOperation, request: Any, owner: str | None) -> Any:
        """Run a reading operation, on the rows of an owner or of all (None)."""
        if owner is None:
            return await self.inner.inspect(operation, request)
        return await self.inner.read(operation, request, owner)

    async def transact(
        self,
        operation: Operation[Request, Result],
        request: Request,
        owner: str,
        sync: Sync = Sync.DISK,
        about: ConversationId | None = None,
    ) -> Result:
        return cast(Result, await self.write(Write(operation, request, owner, sync, about)))

    async def transact_whole(
        self, operation: WholeOperation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        return cast(Result, await self.write(Write(operation, request, None, sync)))

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        return cast(Result, await self.look(operation, request, owner))

    async def read_whole(self, operation: WholeOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self.look(operation, request, None))

    async def inspect(self, operation: InspectOperation[Request, Result], request: Request) -> Result:
        return cast(Result, await self.look(operation, request, None))

    def watch(self, changed: Callable[[], None]) -> None:
        self.inner.watch(changed)

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        await self.inner.keep_lease(id, every)

    def is_holder_dead(self, id: LeaseId) -> bool:
        return self.inner.is_holder_dead(id)

    async def close(self) -> None:
        await self.inner.close()
