"""Whether the tables of a PostgreSQL store agree."""

from __future__ import annotations

from turnledger.model.ids import TurnId
from turnledger.stores.postgresql.tables.queries import StoreQueries
from turnledger.stores.sql.inspection import ODD, Oddities, SqlInspectionRows

ODD_HERE: Oddities = {
    **ODD,
    "attempts_in_the_wrong_half": (TurnId, "{} is marked as running or ended against its state."),
}


class PostgresInspectionRows(SqlInspectionRows, StoreQueries):
    async def inconsistencies(self, limit: int) -> list[str]:
        found = await self._odd_rows(ODD_HERE, limit)
        if await self._fetch("words_without_text"):
            found.append("The search index has words of missing turns or titles.")
        return found[:limit]

    async def turns_without_checksum(self) -> int:
        return 0
