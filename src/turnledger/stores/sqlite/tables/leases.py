"""The leases of a SQLite store."""

from __future__ import annotations

from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite.failures import decoder
from turnledger.stores.sqlite.tables.records import NamedQueries


class SqliteLeaseRows(NamedQueries):
    @decoder
    async def lease(self, id: LeaseId) -> Lease | None:
        row = self._row("lease", id.raw)
        return None if row is None else Lease(id, row[0])

    async def beat(self, id: LeaseId) -> None:
        self._run("beat", id.raw)
