"""The probe: whether turns can run on a store, tested by a write and a read."""

from __future__ import annotations

from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.ports import Inspection, Store, Tables
from turnledger.engine.tables.inspection import Owned
from turnledger.errors import OutcomeUnknown, StoreCorrupt, StoreUnavailable
from turnledger.model.ids import BranchId, LeaseId

SAMPLE = 5
"""Branches read until one is sound: damage to a single chat leaves the others usable."""


class Probe:
    """Tests a store. Each run reads the next few branches, so that in time it has read all."""

    def __init__(self, store: Store, lease: LeaseId) -> None:
        self._store = store
        self._lease = lease
        self._after: BranchId | None = None

    async def run(self) -> None:
        """Write to disk, then read. Raises LedgerClosed, and a StoreError if turns cannot run."""
        try:
            await self._store.transact_whole(renew, self._lease)
        except OutcomeUnknown as problem:
            # Nothing depends on this write, so its outcome does not matter.
            raise (problem.because or StoreUnavailable)(str(problem)) from problem
        sample = await self._store.inspect(_next_branches, self._after)
        self._after = sample[-1].row if len(sample) == SAMPLE else None
        damage: StoreCorrupt | None = None
        for each in sample:
            try:
                await self._store.read(_read_as_a_turn, (each.row, self._lease), each.owner or "")
                return
            except StoreCorrupt as problem:
                damage = problem
        if damage is not None:
            raise damage


async def _next_branches(inspection: Inspection, after: BranchId | None) -> list[Owned[BranchId]]:
    return await inspection.all_branches(after, SAMPLE)


async def _read_as_a_turn(tables: Tables, request: tuple[BranchId, LeaseId]) -> None:
    """Read every table that begin reads."""
    id, lease = request
    branch = await tables.branch(id)
    if branch is None:
        return
    await tables.lane(branch.conversation, lease)
    await tables.turns(id, branch.length - 1, branch.length, 1)
    await tables.attempts(branch.conversation, 1)
    await tables.tickets(id)
    await tables.claim("")
    await tables.newest_position()
