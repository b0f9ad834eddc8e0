"""The conversations of a PostgreSQL store: in lists, by tags, in exports, and when their time is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import Conversation, ConversationState, branch_bytes
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.postgresql.tables.queries import OwnedQueries
from turnledger.stores.row_codec import Row

FEW = 500
"""The most chats with a tag that are read and sorted for each page. A tag of more chats is frequent enough to
scan all chats in order."""
_END_OF_TIME = 2**63 - 1
_TOUCHED_AT, _ID = 10, 0
LISTED, ARCHIVED = 0, 1


class PostgresCatalogueRows(OwnedQueries):
    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        place = (_END_OF_TIME, b"") if after is None else (after.at, after.id.raw)
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
            rows = sorted(found, key=itemgetter(_TOUCHED_AT, _ID), reverse=True)[:limit]
        return [_entry_of(row) for row in rows]

    async def _is_rare(self, tag: str) -> bool:
        [(count,)] = await self._own("count_tagged", tag, FEW + 1)
        return bool(count <= FEW)

    async def _add_tags(self, conversation: Conversation) -> None:
        if conversation.tags:
            await self._own("tag_conversation", conversation.id.raw, list(conversation.tags))

    async def _tag(self, id: ConversationId, before: Collection[str], after: Collection[str]) -> None:
        """Update the index of tags."""
        if gone := [tag for tag in before if tag not in after]:
            await self._own("untag_conversation", id.raw, gone)
        if new := [tag for tag in after if tag not in before]:
            await self._own("tag_conversation", id.raw, new)

    async def oldest_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        # Three queries, each in its own part of an index: a single one would sort all chats of the owner.
        rows = [
            *await self._own("oldest_listed", LISTED, touched_by, limit),
            *await self._own("oldest_listed", ARCHIVED, touched_by, limit),
            *await self._own("oldest_internal", touched_by, limit),
        ]
        return sorted(_conversations(rows), key=lambda each: (each.touched_at, each.id))[:limit]

    async def oldest_deleted(self, limit: int) -> list[Conversation]:
        return _conversations(await self._own("oldest_deleted", limit))

    @decoder
    async def bytes_of(self, conversation: ConversationId) -> int:
        return sum(branch_bytes(size) for (size,) in await self._own("bytes_of", conversation.raw))

    async def least_recent_conversations(
        self, scope: str | None, after: ListPosition | None, limit: int
    ) -> list[Conversation]:
        last = (-1, b"") if after is None else (after.at, after.id.raw)
        rows = [
            *await self._own("least_recent", LISTED, *last, limit, scope),
            *await self._own("least_recent", ARCHIVED, *last, limit, scope),
        ]
        rows.sort(key=itemgetter(_TOUCHED_AT, _ID))
        return _conversations(rows[:limit])

    async def is_id_taken(self, id: ConversationId) -> bool:
        return bool(await self._rows("conversation_is_taken", id.raw))

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        return {TurnId.trusted(raw) for (raw,) in await self._rows("taken_turns", [id.raw for id in ids])}

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        rows = await self._rows("taken_branches", [id.raw for id in ids])
        return {BranchId.trusted(raw) for (raw,) in rows}


@decoder
def _entry_of(row: Row) -> ChatEntry:
    *_, length, preview, running = row
    return ChatEntry(row_codec.conversation_of(row), length, preview, running is not None)


def _conversations(rows: Sequence[Row]) -> list[Conversation]:
    return [row_codec.conversation_of(row) for row in rows]
