"""The rows of all owners inside one transaction."""

from __future__ import annotations

from collections.abc import Collection

from turnledger.engine.tables.changes import ChangeTail
from turnledger.model.change import Position
from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId
from turnledger.stores.damage import decoder
from turnledger.stores.postgresql.tables.inspection import PostgresInspectionRows
from turnledger.stores.postgresql.tables.search import PostgresIndexRows
from turnledger.stores.postgresql.tables.tables import PostgresSharedRows, PostgresTables, place_of
from turnledger.stores.sql.access import SqlAccessRows
from turnledger.stores.sql.whole import SqlWholeRows


class PostgresWholeStore(
    SqlWholeRows, SqlAccessRows, PostgresSharedRows, PostgresIndexRows, PostgresInspectionRows
):
    def of(self, owner: str) -> PostgresTables:
        return PostgresTables(self._transaction, owner)

    async def lease(self, id: LeaseId) -> Lease | None:
        query = "held_lease" if self._transaction.writes else "lease"
        row = await self._fetch_row(query, id.raw)
        return None if row is None else Lease(id, row[0])

    async def purge_ended(self, limit: int) -> int:
        owners = [owner for (owner,) in await self._fetch("unswept_owners", limit)]
        return await self._purge_ended(limit, owners)

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        for owner in sorted({owner for owner, *_ in await self._fetch("old_attempts", ended_before, limit)}):
            await self._lock(owner)
        # Once more: until the owners were locked, one of them may have been taken up by a retry.
        removed = 0
        for owner, *attempt in await self._fetch("old_attempts", ended_before, limit):
            await self._lock(owner)
            removed += await self._remove_attempts(owner, [tuple(attempt)])
        return removed

    async def index_texts(self, limit: int) -> int:
        done = 0
        for (owner,) in await self._fetch("due_owners", limit):
            done += await self._index(owner, limit - done)
            if done >= limit:
                break
        return done

    async def is_index_complete(self) -> bool:
        return await self._is_indexed(None)

    @decoder
    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        rows = await self._fetch("tail", *place_of(after), limit)
        epoch = await self._epoch()
        # Skip changes of owners without followers here, which are most.
        found = [epoch.change_of(row) for row in rows if row[2] in owners]
        through = epoch.position_at(rows[-1][0], rows[-1][1]) if rows else after
        return ChangeTail(found, through, len(rows) == limit)

    @decoder
    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        # Those beyond `keep` go; so do the old ones, but never the newest.
        rows = await self._fetch("oldest_changes", limit, 1)
        beyond = await self._fetch("oldest_changes", limit, max(keep, 1))
        removed = 0
        for number, (_, _, at) in enumerate(rows):
            if at >= before and number >= len(beyond):
                break
            removed += 1
        if removed:
            xid, place, _ = rows[removed - 1]
            await self._fetch("purge_changes", xid, place)
            await self._fetch("note_purge", xid, place)
        return removed

    async def begin_epoch(self, mark: bytes) -> None:
        """Let no position be valid that was given out before, unless another process has done so."""
        if await self._fetch_row("epoch") is None:
            await self._fetch("drop_changes")
            await self._fetch("begin_epoch", mark)
