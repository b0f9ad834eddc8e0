"""What the engine asks the rows of a store for when conversations end: which are due, and to remove what they
leave. A part of `Tables`, see ports."""

from __future__ import annotations

from typing import Protocol

from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId


class EndedTables(Protocol):
    """The conversations of a store whose time is over."""

    async def lapsed_conversations(self, now: int, limit: int) -> list[Conversation]:
        """Live ones whose time without interaction is over and where no turn runs or waits, of all owners."""
        ...

    async def conversations_to_purge(self, now: int, limit: int) -> list[Conversation]:
        """Deleted ones whose `purge_at` has come, of all owners, the first due first."""
        ...

    async def unlisted_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        """Live ones that are not listed, were last touched by then, and have nothing that runs, waits, has
        ended since, or is to be settled; of all owners, the oldest first."""
        ...

    async def owners(self, after: str | None, limit: int) -> list[str]:
        """Those of whom something is stored, in order, after this one."""
        ...

    async def oldest_conversations(self, owner: str, touched_by: int, limit: int) -> list[Conversation]:
        """Live and listed ones, internal ones among them, that were last touched by then, the oldest first,
        without those that are pinned, and those where a turn runs, waits, or ended since."""
        ...

    async def oldest_deleted(self, owner: str, limit: int) -> list[Conversation]:
        """Deleted ones that can be restored, the oldest first."""
        ...

    async def purge_ended(self, limit: int) -> int:
        """Remove up to `limit` turns, attempts and origins of purged and expired conversations, and the
        previews of their branches; return how many. A turn stays while the line of a branch elsewhere
        needs it, and an origin while its branch has turns or another was made from it."""
        ...

    async def bytes_of(self, conversation: ConversationId) -> int:
        """What the branches of a conversation count, each in whole blocks."""
        ...
