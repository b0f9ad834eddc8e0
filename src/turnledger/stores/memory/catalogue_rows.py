"""The lists of chats of a memory store."""

from __future__ import annotations

from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId
from turnledger.model.listing import Listed, ListPosition, Wanted
from turnledger.stores.memory.database import Database


class MemoryCatalogueRows:
    """The part of `Tables` that lists conversations."""

    _db: Database

    async def listed(self, wanted: Wanted, after: ListPosition | None, limit: int) -> list[Listed]:
        found = [
            each
            for each in self._db.conversations.values()
            if wanted.fits(each) and each.branch in self._db.branches
        ]
        if after is not None:
            found = [each for each in found if _place(each) < (after.at, after.id)]
        found.sort(key=_place, reverse=True)
        return [self._listed(each) for each in found[:limit]]

    def _listed(self, conversation: Conversation) -> Listed:
        branch = self._db.branches[conversation.branch]
        return Listed(conversation, branch.length, branch.preview, branch.running is not None)


def _place(conversation: Conversation) -> tuple[int, ConversationId]:
    return conversation.touched_at, conversation.id
