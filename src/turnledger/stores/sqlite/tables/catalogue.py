"""The conversations of a SQLite store: in lists, by tags, in exports, and when their time is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import Conversation, ConversationState, branch_bytes
from turnledger.model.ids import BranchId, ConversationId, Id, TurnId
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import Row
from turnledger.stores.sqlite.tables.records import OwnedRows

FEW = 500
"""The most chats with a tag that are read and sorted for each page. A tag of more chats is frequent enough to
scan all chats in order."""
LOOKED_BACK = 2_000
"""Chats scanned for that; if it does not fill a page, those with the tag are sorted."""
_END_OF_TIME = 2**63 - 1
_TOUCHED_AT, _ID = 10, 0
_SCOPE = 4
_LENGTH, _PREVIEW, _RUNNING = -3, -2, -1

LISTED, ARCHIVED = 0, 1
BEFORE_ALL = (-1, b"")
ID, TOUCHED_AT = 0, 10
"""Columns of a conversation's row."""


class SqliteCatalogueRows(OwnedRows):
    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        place = (_END_OF_TIME, b"") if after is None else (after.at, after.id.raw)
        arguments = (self.owner, *place, limit, chat_filter.scope)
        rest = (chat_filter.pinned, chat_filter.tag)
        state = ConversationState.DELETED if chat_filter.deleted else ConversationState.LIVE
        if chat_filter.tag is not None and self._is_rare(chat_filter.tag):
            rows = self._rows("listed_by_tag", *arguments, chat_filter.archived, *rest, state.value)
        elif chat_filter.deleted:
            rows = self._rows("listed_deleted", *arguments, chat_filter.archived, *rest)
        elif chat_filter.pinned:
            rows = self._rows("listed_pinned", *arguments, chat_filter.archived, *rest)
        else:
            rows = self._in_order(arguments, chat_filter, rest)
        return [_entry_of(row) for row in rows[:limit]]

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
        return sorted(rows, key=itemgetter(_TOUCHED_AT, _ID), reverse=True)

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

    def _is_rare(self, tag: str) -> bool:
        [(count,)] = self._rows("count_tagged", self.owner, tag, FEW + 1)
        return bool(count <= FEW)

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

    async def oldest_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        # Three queries, each in its own part of an index: a single one would sort all chats of the owner.
        rows = self._rows("oldest_listed", self.owner, LISTED, touched_by, limit)
        rows += self._rows("oldest_listed", self.owner, ARCHIVED, touched_by, limit)
        rows += self._rows("oldest_internal", self.owner, touched_by, limit)
        return sorted(_conversations(rows), key=lambda each: (each.touched_at, each.id))[:limit]

    async def oldest_deleted(self, limit: int) -> list[Conversation]:
        return _conversations(self._rows("oldest_deleted", self.owner, limit))

    @decoder
    async def bytes_of(self, conversation: ConversationId) -> int:
        return sum(branch_bytes(size) for (size,) in self._rows("bytes_of", conversation.raw, self.owner))

    async def least_recent_conversations(
        self, scope: str | None, after: ListPosition | None, limit: int
    ) -> list[Conversation]:
        last = BEFORE_ALL if after is None else (after.at, after.id.raw)
        query = "least_recent"
        arguments: list[Any] = [*last, limit]
        if scope is not None:
            query = "least_recent_in_scope" if scope else "least_recent_in_no_scope"
            arguments += [scope] if scope else []
        # Archived ones are in the other half of the index: two queries instead of sorting everything.
        rows = [row for archived in (0, 1) for row in self._rows(query, self.owner, archived, *arguments)]
        rows.sort(key=itemgetter(TOUCHED_AT, ID))
        return [row_codec.conversation_of(row) for row in rows[:limit]]

    async def is_id_taken(self, id: ConversationId) -> bool:
        return bool(self._rows("conversation_is_taken", id.raw))

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        return {TurnId.trusted(raw) for (raw,) in self._rows("taken_turns", _hex(ids))}

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        return {BranchId.trusted(raw) for (raw,) in self._rows("taken_branches", _hex(ids))}


@decoder
def _entry_of(row: Row) -> ChatEntry:
    return ChatEntry(row_codec.conversation_of(row), row[_LENGTH], row[_PREVIEW], bool(row[_RUNNING]))


def _conversations(rows: list[Row]) -> list[Conversation]:
    return [row_codec.conversation_of(row) for row in rows]


def _hex(ids: Sequence[Id]) -> str:
    """Encode ids as one value, for a query that looks for all of them."""
    return msgspec.json.encode([id.raw.hex() for id in ids]).decode()
