"""What is to end in a memory store, or to go for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import ConversationId
from turnledger.model.usage import of_branch

if TYPE_CHECKING:
    from turnledger.stores.memory.database import Database


class MemoryEndedRows:
    """The part of `Tables` that finds conversations whose time is over."""

    _db: Database

    async def conversations_to_purge(self, now: int, limit: int) -> list[Conversation]:
        due = [(each.purge_at or 0, each.id, each) for each in self._in(ConversationState.DELETED)]
        return [each for purge_at, _, each in sorted(due) if purge_at <= now][:limit]

    async def unlisted_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        tried = self._tried_after(touched_by)
        idle = [
            each
            for each in self._in(ConversationState.LIVE)
            if not each.is_listed and each.touched_at <= touched_by and not self._is_in_use(each)
            if self._db.branches[each.branch].unsettled is None and each.id not in tried
        ]
        return sorted(idle, key=_age)[:limit]

    async def owners(self, after: str | None, limit: int) -> list[str]:
        stored = [owner for owner, usage in self._db.stored.items() if usage.bytes > 0]
        return sorted(owner for owner in stored if after is None or owner > after)[:limit]

    async def oldest_conversations(self, owner: str, touched_by: int, limit: int) -> list[Conversation]:
        tried = self._tried_after(touched_by, is_use=True)
        idle = [
            each
            for each in self._in(ConversationState.LIVE)
            if each.owner == owner and each.is_listed and not each.pinned
            if each.touched_at <= touched_by and not self._is_in_use(each) and each.id not in tried
        ]
        return sorted(idle, key=_age)[:limit]

    async def oldest_deleted(self, owner: str, limit: int) -> list[Conversation]:
        deleted = [each for each in self._in(ConversationState.DELETED) if each.owner == owner]
        return sorted(deleted, key=_age)[:limit]

    async def bytes_of(self, conversation: ConversationId) -> int:
        branches = [each for each in self._db.branches.values() if each.conversation == conversation]
        return sum(of_branch(each.bytes) for each in branches if each.id not in self._db.cleared)

    def _in(self, state: ConversationState) -> list[Conversation]:
        return [each for each in self._db.conversations.values() if each.state is state]

    def _tried_after(self, at: int, *, is_use: bool = False) -> set[ConversationId]:
        """Those where an attempt ended after that time, which counts as use if that is asked for."""
        ended = [each for each in self._db.attempts.values() if (each.ended_at or 0) > at]
        return {each.conversation for each in ended if each.is_interaction or not is_use}

    def _is_in_use(self, conversation: Conversation) -> bool:
        """Whether a turn runs or waits there."""
        branch = conversation.branch
        waits = any(ticket.branch == branch for ticket in self._db.tickets.values())
        return waits or self._db.branches[branch].running is not None


def is_restorable(conversation: Conversation) -> bool:
    """Whether it was deleted, and can come back."""
    return conversation.state is ConversationState.DELETED


def _age(conversation: Conversation) -> tuple[int, object]:
    return conversation.touched_at, conversation.id
