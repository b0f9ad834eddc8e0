"""Gates: force a race or a fault at an exact operation.

store = GatedStore(MemoryStore())
ledger = await Ledger.over(store)
with store.hold(commit) as gate:            # from turnledger.engine.turn.commit
    turn = asyncio.create_task(chat.run(model, "Hello"))
    await gate.arrived()                    # the commit is about to happen
    ...                                     # work that races with it
    gate.release()
store.lose_answer(commit, Fate.WRITTEN)     # the next commit happens, and its answer is lost
store.refuse(commit)                        # the next commit finds the store out of reach
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.ports import Store
from turnledger.engine.turn.begin import HistoryMoved, MustReachDisk
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore, Write
from turnledger.errors import OutcomeUnknown, StoreError, StoreUnavailable, TurnledgerError
from turnledger.model.ids import LeaseId

NEVER_RENEWED = 1_000_000.0
"""Seconds between renewals of a lease that should expire."""


class Gate:
    """A point that tasks pass only after its release, and whose arrivals a test can await."""

    def __init__(self) -> None:
        self._arrivals = 0
        self._arrival = asyncio.Event()
        self._released = asyncio.Event()

    async def pass_through(self) -> None:
        """Arrive, and wait for the release."""
        self._arrivals += 1
        self._arrival.set()
        await self._released.wait()

    async def arrived(self, count: int = 1) -> None:
        """Wait until `count` tasks have arrived since the gate was made."""
        while self._arrivals < count:
            self._arrival.clear()
            await self._arrival.wait()

    def release(self) -> None:
        """Let all tasks pass, from now on."""
        self._released.set()


class When(Enum):
    BEFORE = "before"
    AFTER = "after"  # written, and not yet returned to the caller


class Fate(Enum):
    """The fate of a write whose answer is lost."""

    WRITTEN = "written"
    LOST = "lost"
    LATE = "late"  # written just before the next write of this process, as the Store protocol allows


class GatedStore(WrappedStore):
    """Wraps a store; tests hold it or make it fail at chosen operations.

    `operations` names those that ran, in order. `neighbours` is a list shared by the stores of one database:
    each write notifies the others at once, whatever hints the stores give. With `renews=False` only `beat`
    renews the lease.
    """

    def __init__(
        self, store: Store, *, renews: bool = True, neighbours: list[GatedStore] | None = None
    ) -> None:
        super().__init__(store)
        self._renews = renews
        self._neighbours = [] if neighbours is None else neighbours
        self._neighbours.append(self)
        self._gates: dict[tuple[AnyOperation, When], list[Gate]] = defaultdict(list)
        self._faults: dict[AnyOperation, deque[StoreError | Fate]] = defaultdict(deque)
        self._late: list[Write] = []
        self._changed: Callable[[], None] | None = None
        self._lease: LeaseId | None = None
        self.ignores_hints = False
        self.gone: set[LeaseId] = set()
        """Leases of processes to report as dead, whatever the store knows."""
        self.operations: list[str] = []

    @contextmanager
    def hold(self, operation: AnyOperation, when: When = When.BEFORE) -> Iterator[Gate]:
        """Hold every run of the operation at a gate, released at the end of the block."""
        gate = Gate()
        held = self._gates[operation, when]
        held.append(gate)
        try:
            yield gate
        finally:
            held.remove(gate)
            gate.release()

    def refuse(self, operation: AnyOperation, error: StoreError | None = None, *, times: int = 1) -> None:
        """Make the next runs of the operation raise without writing."""
        self._faults[operation].extend([error or StoreUnavailable()] * times)

    def lose_answer(self, operation: AnyOperation, *fates: Fate) -> None:
        """Make the next runs of the operation raise OutcomeUnknown, one per fate."""
        self._faults[operation].extend(fates)

    def announce(self) -> None:
        """Hint that another process may have written."""
        if self._changed is not None and not self.ignores_hints:
            self._changed()

    async def beat(self) -> None:
        """Renew the lease once."""
        assert self._lease is not None, "no ledger was opened over this store"
        await self.transact_whole(renew, self._lease)

    async def write(self, write: Write) -> Any:
        operation = write.operation
        await self._pass(operation, When.BEFORE)
        fault = self._faults[operation].popleft() if self._faults[operation] else None
        if isinstance(fault, StoreError):
            raise fault
        if fault is Fate.LATE:
            self._late.append(write)
        if fault in (Fate.LATE, Fate.LOST):
            raise OutcomeUnknown
        await self._write_late()
        result = await super().write(write)
        self._note(operation)
        self._notify_neighbours()
        await self._pass(operation, When.AFTER)
        if fault is Fate.WRITTEN:
            raise OutcomeUnknown
        return result

    async def look(self, operation: AnyOperation, request: Any, owner: str | None) -> Any:
        await self._pass(operation, When.BEFORE)
        if self._faults[operation]:
            fault = self._faults[operation].popleft()
            raise fault if isinstance(fault, StoreError) else StoreUnavailable
        result = await super().look(operation, request, owner)
        self._note(operation)
        await self._pass(operation, When.AFTER)
        return result

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.inner.watch(self.announce)

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        self._lease = id
        await self.inner.keep_lease(id, every if self._renews else NEVER_RENEWED)

    def is_holder_dead(self, id: LeaseId) -> bool:
        return id in self.gone or self.inner.is_holder_dead(id)

    async def close(self) -> None:
        if self in self._neighbours:
            self._neighbours.remove(self)
        await self.inner.close()

    async def _pass(self, operation: AnyOperation, when: When) -> None:
        for gate in list(self._gates[operation, when]):
            await gate.pass_through()

    async def _write_late(self) -> None:
        while self._late:
            late = self._late.pop(0)
            with suppress(TurnledgerError, MustReachDisk, HistoryMoved):  # no longer allowed
                await super().write(late)

    def _note(self, operation: AnyOperation) -> None:
        self.operations.append(getattr(operation, "__name__", repr(operation)))

    def _notify_neighbours(self) -> None:
        for store in self._neighbours:
            if store is not self:
                asyncio.get_running_loop().call_soon(store.announce)
