"""The rows of a SQLite store that concern all owners."""

from __future__ import annotations

from collections.abc import Collection

from turnledger.engine.tables.changes import ChangeTail
from turnledger.model.change import Position
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.sql.access import SqlAccessRows
from turnledger.stores.sql.whole import SqlWholeRows
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.inspection import SqliteInspectionRows
from turnledger.stores.sqlite.tables.tables import SqliteSharedRows, SqliteTables


class SqliteWholeStore(SqlWholeRows, SqlAccessRows, SqliteSharedRows, SqliteInspectionRows):
    def of(self, owner: str) -> SqliteTables:
        return SqliteTables(self._cursor, owner, self._lanes)

    @decoder
    async def purge_ended(self, limit: int) -> int:
        return self._purge_ended(limit, None)

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        return self._remove_attempts(self._rows("old_attempts", ended_before, limit))

    async def index_texts(self, limit: int) -> int:
        return self._index_all(limit)

    @decoder
    async def is_index_complete(self) -> bool:
        return self._is_all_indexed()

    @decoder
    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        rows = self._rows("tail", records.number_at(after), limit)
        # Skip changes of owners without followers here, which are most.
        found = [row_codec.change_of(row, records.position_in(row)) for row in rows if row[1] in owners]
        through = records.position_in(rows[-1]) if rows else after
        return ChangeTail(found, through, len(rows) == limit)

    @decoder
    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest = self._rows("newest_change")
        if not newest:
            return 0
        number = newest[0][0]
        self._rows("purge_changes", limit, number, before, number - keep)
        return self._cursor.connection.changes()
