"""The conversations of a SQLite store: in lists, by tags, in exports, and when their time is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import ConversationId, Id
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import Row
from turnledger.stores.sql.owner import (
    ARCHIVED,
    END_OF_TIME,
    ID,
    LISTED,
    TOUCHED_AT,
    SqlOwnerRows,
    conversations_of,
    entry_of,
)
from turnledger.stores.sqlite.tables.records import OwnedRows

LOOKED_BACK = 2_000
"""Chats scanned for that; if it does not fill a page, those with the tag are sorted."""
BEFORE_ALL = (-1, b"")
_SCOPE = 4


class SqliteCatalogueRows(SqlOwnerRows, OwnedRows):
    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        place = (END_OF_TIME, b"") if after is None else (after.at, after.id.raw)
        arguments = (self.owner, *place, limit, chat_filter.scope)
        rest = (chat_filter.pinned, chat_filter.tag)
        state = ConversationState.DELETED if chat_filter.deleted else ConversationState.LIVE
        if chat_filter.tag is not None and await self._is_rare(chat_filter.tag):
            rows = self._rows("listed_by_tag", *arguments, chat_filter.archived, *rest, state.value)
        elif chat_filter.deleted:
            rows = self._rows("listed_deleted", *arguments, chat_filter.archived, *rest)
        elif chat_filter.pinned:
            rows = self._rows("listed_pinned", *arguments, chat_filter.archived, *rest)
        else:
            rows = self._in_order(arguments, chat_filter, rest)
        return [entry_of(row) for row in rows[:limit]]

    @decoder
    def _in_order(self, arguments: Row, chat_filter: ChatFilter, rest: Row) -> list[Row]:
        """Scan all chats from a place on; archived ones are separate in the index, and need a second scan."""
        *place, limit, scope = arguments
        rows: list[Row] = []
        for half in (False, True) if chat_filter.archived is None else (chat_filter.archived,):
            end = self._end(place, half, scope) if chat_filter.tag is not None else None
            found = self._half(*arguments, half, *rest, end or 0)
            if end is not None and len(found) < limit:
                live = ConversationState.LIVE.value
                return self._rows("listed_by_tag", *arguments, chat_filter.archived, *rest, live)
            rows += found
        return sorted(rows, key=itemgetter(TOUCHED_AT, ID), reverse=True)

    def _half(self, *arguments: Any) -> list[Row]:
        """Use the index of the scope, if there is one."""
        if arguments[_SCOPE]:
            return self._rows("listed_in_scope", *arguments)
        return self._rows("listed", *arguments)

    def _end(self, place: Sequence[Any], archived: bool, scope: str | None) -> int | None:
        """Return the time down to which chats are scanned from a place on; None if there are no more."""
        if scope:
            rows = self._rows("looked_back_in_scope", *place, LOOKED_BACK, archived, scope)
        else:
            rows = self._rows("looked_back", *place, LOOKED_BACK, archived)
        return rows[0][0] if rows else None

    def _add_tags(self, conversation: Conversation) -> None:
        for tag in conversation.tags:
            self._run("add_tag", self.owner, tag, conversation.id.raw)

    @decoder
    def _tag(self, id: ConversationId, tags: Collection[str]) -> None:
        """Update the tags of a conversation. Call it before saving: the row still has the old ones."""
        for (before,) in self._rows("tags", id.raw, self.owner):
            had = row_codec.tags_of(before)
            for tag in had:
                if tag not in tags:
                    self._run("drop_tag", self.owner, tag, id.raw)
            for tag in tags:
                if tag not in had:
                    self._run("add_tag", self.owner, tag, id.raw)

    async def least_recent_conversations(
        self, scope: str | None, after: ListPosition | None, limit: int
    ) -> list[Conversation]:
        last = BEFORE_ALL if after is None else (after.at, after.id.raw)
        query = "least_recent"
        arguments: list[Any] = [*last, limit]
        if scope is not None:
            query = "least_recent_in_scope" if scope else "least_recent_in_no_scope"
            arguments += [scope] if scope else []
        rows = [
            row
            for archived in (LISTED, ARCHIVED)
            for row in self._rows(query, self.owner, archived, *arguments)
        ]
        rows.sort(key=itemgetter(TOUCHED_AT, ID))
        return conversations_of(rows[:limit])

    def _several(self, ids: Sequence[Id]) -> str:
        return msgspec.json.encode([id.raw.hex() for id in ids]).decode()
