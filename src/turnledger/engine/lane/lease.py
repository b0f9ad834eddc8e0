"""Leases: how a process shows that it lives, and how the others conclude that it does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from turnledger.engine.ports import Clock, Tables
from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId


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
