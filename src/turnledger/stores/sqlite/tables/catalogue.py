"""The lists of chats of a SQLite store: catalogue.sql, called by the engine's names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

import apsw

from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import ConversationId
from turnledger.model.listing import Listed, ListPosition, Wanted
from turnledger.stores.sqlite.decoders import decoder
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.queries import named_queries, sql_text
from turnledger.stores.sqlite.tables.records import Row

QUERIES = named_queries(sql_text("tables/catalogue.sql"))

FEW = 500
"""Chats of one tag that are read and put in order for each page. Of a tag that more have, one mostly comes by
often enough when all chats are gone through in order."""
LOOKED_BACK = 2_000
"""Chats that are gone through so; where that is not enough for a page, those of the tag are put in order."""
_END_OF_TIME = 2**63 - 1
_TOUCHED_AT, _ID = 10, 0
_SCOPE = 4
_LENGTH, _PREVIEW, _RUNNING = -3, -2, -1


class SqliteCatalogueRows:
    """The part of `Tables` that lists conversations, and finds them by their tags."""

    _cursor: apsw.Cursor

    def _list_rows(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    async def listed(self, wanted: Wanted, after: ListPosition | None, limit: int) -> list[Listed]:
        place = (_END_OF_TIME, b"") if after is None else (after.at, after.id.raw)
        asked = (wanted.owner, *place, limit, wanted.scope)
        rest = (wanted.pinned, wanted.tag)
        state = ConversationState.DELETED if wanted.deleted else ConversationState.LIVE
        if wanted.tag is not None and self._is_rare(wanted.owner, wanted.tag):
            rows = self._list_rows("listed_by_tag", *asked, wanted.archived, *rest, state.value)
        elif wanted.deleted:
            rows = self._list_rows("listed_deleted", *asked, wanted.archived, *rest)
        elif wanted.pinned:
            rows = self._list_rows("listed_pinned", *asked, wanted.archived, *rest)
        else:
            rows = self._in_order(asked, wanted, rest)
        return [_listed(row) for row in rows[:limit]]

    @decoder
    def _in_order(self, asked: Row, wanted: Wanted, rest: Row) -> list[Row]:
        """Go through all chats from a place on. Archived ones lie apart: who wants both gets them from two
        places."""
        *place, limit, scope = asked
        rows: list[Row] = []
        for half in (False, True) if wanted.archived is None else (wanted.archived,):
            end = self._end(place, half, scope) if wanted.tag is not None else None
            found = self._half(*asked, half, *rest, end or 0)
            if end is not None and len(found) < limit:
                live = ConversationState.LIVE.value
                return self._list_rows("listed_by_tag", *asked, wanted.archived, *rest, live)
            rows += found
        return sorted(rows, key=itemgetter(_TOUCHED_AT, _ID), reverse=True)

    def _half(self, *asked: Any) -> list[Row]:
        """Those of one application have an index of their own."""
        if asked[_SCOPE]:
            return self._list_rows("listed_in_scope", *asked)
        return self._list_rows("listed", *asked)

    def _end(self, place: Sequence[Any], archived: bool, scope: str | None) -> int | None:
        """The time up to which chats are gone through from a place on; None if there are no more."""
        if scope:
            rows = self._list_rows("looked_back_in_scope", *place, LOOKED_BACK, archived, scope)
        else:
            rows = self._list_rows("looked_back", *place, LOOKED_BACK, archived)
        return rows[0][0] if rows else None

    def _is_rare(self, owner: str, tag: str) -> bool:
        [(count,)] = self._list_rows("count_tagged", owner, tag, FEW + 1)
        return bool(count <= FEW)

    def _add_tags(self, conversation: Conversation) -> None:
        """Make a new conversation be found by its tags."""
        for tag in conversation.tags:
            self._list_rows("add_tag", conversation.owner, tag, conversation.id.raw)

    @decoder
    def _tag(self, id: ConversationId, tags: Collection[str]) -> None:
        """Make a conversation be found by its tags. It is about to be saved with them: in its row are still
        those it has had before."""
        for owner, before in self._list_rows("tags", id.raw):
            had = records.tags_of(before)
            for tag in had:
                if tag not in tags:
                    self._list_rows("drop_tag", owner, tag, id.raw)
            for tag in tags:
                if tag not in had:
                    self._list_rows("add_tag", owner, tag, id.raw)


@decoder
def _listed(row: Row) -> Listed:
    return Listed(records.conversation_of(row), row[_LENGTH], row[_PREVIEW], bool(row[_RUNNING]))
