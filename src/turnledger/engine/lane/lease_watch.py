"""Leases: how a process shows that it is alive, and how others detect its death."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from turnledger.engine.ports import Clock, WholeStore
from turnledger.engine.tables.lanes import LeaseRows
from turnledger.model.conversation import NOBODY, Lease
from turnledger.model.ids import LeaseId


class LeaseWatch:
    """Judges other processes by their beats on its own monotonic clock, so no clocks are compared.

    A lease has lapsed when its beat did not change for a whole lease time while this process watched, or at
    once when the store knows that its process is gone. A wrong judgement is safe: the fence decides.
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
        """Record these beats; return those of the leases that have lapsed."""
        now = self._clock.monotonic()
        dead: dict[LeaseId, int | None] = {}
        for lease, beat in beats:
            if lease in (self._own, NOBODY):
                continue
            seen = self._seen.get(lease)
            if seen is None or seen[0] != beat:
                self._seen[lease] = seen = (beat, now)
            if now - seen[1] >= self._lease_time or self._is_gone(lease):
                dead[lease] = beat
        return dead

    def forget(self, lease: LeaseId) -> None:
        """Drop a buried lease: if it comes back, it is watched afresh."""
        self._seen.pop(lease, None)

    def retain(self, leases: Collection[LeaseId]) -> None:
        for lease in [each for each in self._seen if each not in leases]:
            del self._seen[lease]


async def all_leases(whole: WholeStore, _: None) -> list[Lease]:
    return await whole.leases()


async def renew(whole: WholeStore, id: LeaseId) -> None:
    await whole.beat(id)


Dead = Mapping[LeaseId, int | None]
"""Leases found dead, with their beat at that time: one that beats again is alive."""


async def is_dead(tables: LeaseRows, lease: LeaseId, dead: Dead) -> bool:
    """Return whether the lease still has the beat at which it was found dead."""
    return lease in dead and await beat_of(tables, lease) == dead[lease]


async def beat_of(tables: LeaseRows, lease: LeaseId) -> int | None:
    found = await tables.lease(lease)
    return found.beat if found else None
