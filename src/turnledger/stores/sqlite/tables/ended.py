"""What is to end in a SQLite store, or to go for good: ended.sql, called by the engine's names."""

from __future__ import annotations

from typing import Any

import apsw

from turnledger.model.conversation import Conversation, of_branch
from turnledger.model.ids import ConversationId
from turnledger.stores.sqlite.decoders import decoder
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.queries import named_queries, sql_text
from turnledger.stores.sqlite.tables.records import Row

QUERIES = named_queries(sql_text("tables/ended.sql"))
LISTED, ARCHIVED = 0, 1


class SqliteEndedRows:
    """The part of `Tables` that finds conversations whose time is over."""

    _cursor: apsw.Cursor

    def _ended_rows(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    async def conversations_to_purge(self, now: int, limit: int) -> list[Conversation]:
        return _conversations(self._ended_rows("conversations_to_purge", now, limit))

    async def unlisted_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        return _conversations(self._ended_rows("unlisted_conversations", touched_by, limit))

    async def owners(self, after: str | None, limit: int) -> list[str]:
        return [owner for (owner,) in self._ended_rows("owners", after, limit)]

    async def oldest_conversations(self, owner: str, touched_by: int, limit: int) -> list[Conversation]:
        # Each lies in its own part of an index: one query for all would sort everything the owner has.
        rows = self._ended_rows("oldest_listed", owner, LISTED, touched_by, limit)
        rows += self._ended_rows("oldest_listed", owner, ARCHIVED, touched_by, limit)
        rows += self._ended_rows("oldest_internal", owner, touched_by, limit)
        return sorted(_conversations(rows), key=lambda each: (each.touched_at, each.id))[:limit]

    async def oldest_deleted(self, owner: str, limit: int) -> list[Conversation]:
        return _conversations(self._ended_rows("oldest_deleted", owner, limit))

    @decoder
    async def bytes_of(self, conversation: ConversationId) -> int:
        return sum(of_branch(size) for (size,) in self._ended_rows("bytes_of", conversation.raw))


def _conversations(rows: list[Row]) -> list[Conversation]:
    return [records.conversation_of(row) for row in rows]
