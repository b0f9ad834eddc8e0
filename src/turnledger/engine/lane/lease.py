"""Leases: how a process shows that it is alive, how others conclude that it is not; and the probe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from turnledger.engine.ports import Clock, Store, Sync, Tables
from turnledger.errors import OutcomeUnknown, StoreCorrupt, StoreUnavailable
from turnledger.model.conversation import Lease
from turnledger.model.ids import BranchId, LeaseId


class LeaseWatch:
    """Judges other processes by their beats, on this process's own monotonic clock: no clocks are compared.

    A lease has lapsed when its beat stood still for a whole lease time while this process watched, or at
    once when the store knows that its process is gone. Being wrong is safe: the fence decides.
    """

    def __init__(
        self, own: LeaseId, clock: Clock, lease_time: float, is_gone: Callable[[LeaseId], bool]
    ) -> None:
        self._own = own
        self._clock = clock
        self._lease_time = lease_time
        self._is_gone = is_gone
        self._seen: dict[LeaseId, tuple[int | None, float]] = {}

    def dead_among(self, beats: Iterable[tuple[LeaseId, int | None]]) -> dict[LeaseId, int | None]:
        """Take note of these beats; return those of the leases that have lapsed."""
        now = self._clock.monotonic()
        dead: dict[LeaseId, int | None] = {}
        for lease, beat in beats:
            if lease == self._own:
                continue
            seen = self._seen.get(lease)
            if seen is None or seen[0] != beat:
                self._seen[lease] = seen = (beat, now)
            if now - seen[1] >= self._lease_time or self._is_gone(lease):
                dead[lease] = beat
        return dead

    def forget(self, lease: LeaseId) -> None:
        """Drop what was noted of a lease that was buried: if it comes back, it is watched anew."""
        self._seen.pop(lease, None)

    def retain(self, leases: Collection[LeaseId]) -> None:
        """Drop what was noted of leases that are no more."""
        for lease in [each for each in self._seen if each not in leases]:
            del self._seen[lease]


async def all_leases(tables: Tables, _: None) -> list[Lease]:
    return await tables.leases()


async def renew(tables: Tables, id: LeaseId) -> None:
    """Show that the process lives."""
    await tables.beat(id)


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
