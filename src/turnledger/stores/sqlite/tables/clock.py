"""What a SQLite store knows of time: clock.sql, called by the engine's names."""

from __future__ import annotations

from typing import Any

import apsw

from turnledger.model.clock_mark import ClockMark
from turnledger.stores.sqlite.decoders import decoder
from turnledger.stores.sqlite.tables.queries import named_queries, sql_text
from turnledger.stores.sqlite.tables.records import Row

QUERIES = named_queries(sql_text("tables/clock.sql"))


class SqliteClockRows:
    """The part of `Tables` that is about clocks."""

    _cursor: apsw.Cursor

    def _clock_rows(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    @decoder
    async def clock_mark(self) -> ClockMark | None:
        rows = self._clock_rows("clock_mark")
        return ClockMark(*rows[0]) if rows else None

    async def save_clock_mark(self, mark: ClockMark) -> None:
        self._clock_rows("save_clock_mark", mark.boot, mark.boot_at, mark.since, mark.trusted_at)

    @decoder
    async def newest_time(self) -> int | None:
        [(newest,)] = self._clock_rows("newest_time")
        return newest if newest is None else int(newest)
