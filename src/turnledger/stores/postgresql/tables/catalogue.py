"""The conversations of a PostgreSQL store: in lists, by tags, in exports, and when their time is over."""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Any

from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import ConversationId
from turnledger.stores.postgresql.tables.queries import OwnedQueries
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


class PostgresCatalogueRows(SqlOwnerRows, OwnedQueries):
    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        place = (END_OF_TIME, b"") if after is None else (after.at, after.id.raw)
        tag, archived, pinned = chat_filter.tag, chat_filter.archived, chat_filter.pinned
        state = ConversationState.DELETED if chat_filter.deleted else ConversationState.LIVE
        arguments: list[Any] = [*place, limit, chat_filter.scope, archived, pinned, tag]
        if tag is not None and await self._is_rare(tag):
            rows = await self._own("listed_by_tag", *arguments, state.value)
        elif chat_filter.deleted:
            rows = await self._own("listed_deleted", *arguments)
        elif pinned:
            rows = await self._own("listed_pinned", *arguments)
        else:
            # Archived ones are in the other half of the index: two queries instead of sorting everything.
            query = "listed_in_scope" if chat_filter.scope else "listed"
            found: list[Row] = []
            for half in (False, True) if archived is None else (archived,):
                arguments[4] = half
                found += await self._own(query, *arguments)
            rows = sorted(found, key=itemgetter(TOUCHED_AT, ID), reverse=True)[:limit]
        return [entry_of(row) for row in rows]

    async def _add_tags(self, conversation: Conversation) -> None:
        if conversation.tags:
            await self._own("tag_conversation", conversation.id.raw, list(conversation.tags))

    async def _tag(self, id: ConversationId, before: Collection[str], after: Collection[str]) -> None:
        """Update the index of tags."""
        if gone := [tag for tag in before if tag not in after]:
            await self._own("untag_conversation", id.raw, gone)
        if new := [tag for tag in after if tag not in before]:
            await self._own("tag_conversation", id.raw, new)

    async def least_recent_conversations(
        self, scope: str | None, after: ListPosition | None, limit: int
    ) -> list[Conversation]:
        last = (-1, b"") if after is None else (after.at, after.id.raw)
        rows = [
            *await self._own("least_recent", LISTED, *last, limit, scope),
            *await self._own("least_recent", ARCHIVED, *last, limit, scope),
        ]
        rows.sort(key=itemgetter(TOUCHED_AT, ID))
        return conversations_of(rows[:limit])
