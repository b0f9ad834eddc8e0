"""What exports and imports ask of a SQLite store: transfer.sql, called by the engine's names."""

from __future__ import annotations

from typing import Any

import apsw

from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId, TurnId
from turnledger.stores.sqlite import records
from turnledger.stores.sqlite.queries import named_queries, sql_text
from turnledger.stores.sqlite.records import Row

QUERIES = named_queries(sql_text("transfer.sql"))
BEFORE_ALL = (-1, b"")


class TransferRows:
    """The part of `Tables` that is for whole chats."""

    _cursor: apsw.Cursor

    def _found(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    async def untouched(
        self, owner: str, scope: str | None, after: tuple[int, ConversationId] | None, limit: int
    ) -> list[Conversation]:
        last = BEFORE_ALL if after is None else (after[0], after[1].raw)
        if scope is None:
            rows = self._found("untouched", owner, *last, limit)
        else:
            rows = self._found("untouched_in_scope", owner, scope, *last, limit)
        return [records.conversation_of(row) for row in rows]

    async def is_taken(self, id: ConversationId | TurnId) -> bool:
        query = "conversation_is_taken" if isinstance(id, ConversationId) else "turn_is_taken"
        return bool(self._found(query, id.raw))
