"""Probe: whether turns can run, found out by writing to the store, and by reading as turns do."""

from __future__ import annotations

from turnledger.engine.lane.lease import renew
from turnledger.engine.ports import Store, Sync, Tables
from turnledger.errors import OutcomeUnknown, StoreCorrupt, StoreUnavailable
from turnledger.model.ids import BranchId, LeaseId

SAMPLE = 5
"""Branches that are read until one is sound: damage to a single chat leaves the others usable."""


class Probe:
    """Tries out a store. Each time it reads the next few branches, so that in time it has read all."""

    def __init__(self, store: Store, lease: LeaseId) -> None:
        self._store = store
        self._lease = lease
        self._after: BranchId | None = None

    async def run(self) -> None:
        """Write a sign of life to disk, then read. Raises a StoreError that says why turns cannot run, and
        LedgerClosed."""
        try:
            await self._store.transact(renew, self._lease, Sync.DISK)
        except OutcomeUnknown as problem:
            # Nothing hangs on this write, so it does not matter whether it is there.
            raise (problem.because or StoreUnavailable)(str(problem)) from problem
        sample = await self._store.read(_next_branches, self._after)
        self._after = sample[-1][1] if len(sample) == SAMPLE else None
        damage: StoreCorrupt | None = None
        for owner, branch in sample:
            try:
                await self._store.read(_read_as_a_turn, (owner or "", branch, self._lease))
                return
            except StoreCorrupt as problem:
                damage = problem
        if damage is not None:
            raise damage


async def _next_branches(tables: Tables, after: BranchId | None) -> list[tuple[str | None, BranchId]]:
    return await tables.all_branches(after, SAMPLE)


async def _read_as_a_turn(tables: Tables, request: tuple[str, BranchId, LeaseId]) -> None:
    """Read from every table that a turn begins with."""
    owner, id, lease = request
    branch = await tables.branch(id)
    if branch is None:
        return
    await tables.lane(owner, branch.conversation, lease)
    await tables.turns(id, branch.length - 1, branch.length, 1)
    await tables.attempts(branch.conversation, 1)
    await tables.tickets(id)
    await tables.claim(owner, "")
    await tables.change_position(None)
