"""What exports and imports ask of a SQLite store: transfer.sql, called by the engine's names."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import apsw
import msgspec

from turnledger.model.conversation import Conversation
from turnledger.model.ids import BranchId, ConversationId, Id, TurnId
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.queries import named_queries, sql_text
from turnledger.stores.sqlite.tables.records import Row

QUERIES = named_queries(sql_text("tables/transfer.sql"))
BEFORE_ALL = (-1, b"")
ID, TOUCHED_AT = 0, 10
"""Places in a row that is read as a conversation."""


class SqliteTransferRows:
    """The part of `Tables` that is for whole chats."""

    _cursor: apsw.Cursor

    def _found(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    async def untouched(
        self, owner: str, scope: str | None, after: tuple[int, ConversationId] | None, limit: int
    ) -> list[Conversation]:
        last = BEFORE_ALL if after is None else (after[0], after[1].raw)
        query = "untouched"
        asked: list[Any] = [*last, limit]
        if scope is not None:
            query = "untouched_in_scope" if scope else "untouched_in_no_scope"
            asked += [scope] if scope else []
        # Lists keep archived ones apart, in two halves of one index: two looks, and no sorting of everything.
        rows = [row for archived in (0, 1) for row in self._found(query, owner, archived, *asked)]
        rows.sort(key=itemgetter(TOUCHED_AT, ID))
        return [records.conversation_of(row) for row in rows[:limit]]

    async def is_taken(self, id: ConversationId) -> bool:
        return bool(self._found("conversation_is_taken", id.raw))

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        return {TurnId.trusted(raw) for (raw,) in self._found("taken_turns", _hex(ids))}

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        return {BranchId.trusted(raw) for (raw,) in self._found("taken_branches", _hex(ids))}


def _hex(ids: Sequence[Id]) -> str:
    """Ids as one value, for a query that looks for all of them."""
    return msgspec.json.encode([id.raw.hex() for id in ids]).decode()
