"""What exports and imports ask of a memory store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.stores.memory.undo_log import UndoLog

if TYPE_CHECKING:
    from turnledger.stores.memory.database import Database


class MemoryTransferRows(UndoLog):
    """The part of `Tables` that is for whole chats."""

    _db: Database

    async def untouched(
        self, owner: str, scope: str | None, after: tuple[int, ConversationId] | None, limit: int
    ) -> list[Conversation]:
        found = sorted(
            (each.touched_at, each.id)
            for each in self._db.conversations.values()
            if each.owner == owner and each.state is ConversationState.LIVE
            if each.is_listed and not each.internal and scope in (None, each.scope)
        )
        return [self._db.conversations[id] for at, id in found if after is None or (at, id) > after][:limit]

    async def is_taken(self, id: ConversationId) -> bool:
        return id in self._db.conversations

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        db = self._db
        return {id for id in ids if id in db.turns or id in db.attempts or id in db.tickets}

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        return {id for id in ids if id in self._db.branches}
