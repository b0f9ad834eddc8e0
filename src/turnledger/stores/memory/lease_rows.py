"""The leases of a memory store."""

from __future__ import annotations

from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId
from turnledger.stores.memory.database import MemoryRows


class MemoryLeaseRows(MemoryRows):
    async def lease(self, id: LeaseId) -> Lease | None:
        return self._db.leases.get(id)

    async def beat(self, id: LeaseId) -> None:
        last = self._db.leases.get(id) or self._db.buried.get(id)
        self._put(self._db.leases, id, Lease(id, last.beat + 1 if last else 1))
        self._remove(self._db.buried, id)
