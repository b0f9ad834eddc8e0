"""The conversations of an owner, and what the owner stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnledger.model.access.share import Share
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import Conversation, Usage
from turnledger.model.ids import BranchId, ConversationId, TurnId


class ConversationRows(Protocol):
    async def conversation(self, id: ConversationId) -> Conversation | None: ...
    async def conversation_by_key(self, scope: str, conversation_key: str) -> Conversation | None: ...
    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        """Matching ones with the state of their current branch, last touched first, after a position.
        Excludes internal and unlisted ones. Must be fast with many chats, and with rare and common tags."""

    async def least_recent_conversations(
        self, scope: str | None, after: ListPosition | None, limit: int
    ) -> list[Conversation]:
        """Live, listed, not internal ones of one scope or all, longest untouched first, after a position."""

    async def add_conversation(self, conversation: Conversation) -> None:
        """Insert; its conversation_key, if any, must be free in its scope."""

    async def save_conversation(self, conversation: Conversation) -> None:
        """Update all but id, owner and scope. Saving it as deleted or purged, or without a conversation_key,
        frees the key; saving it live with a key takes the key, if it is free."""

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        """Advance the time of the last interaction, never set it back: a reader of pages must not see a chat
        twice. Changes nothing else."""

    async def move_conversation(self, id: ConversationId, old: BranchId, new: BranchId) -> bool:
        """Make `new`, which must exist, the current branch if `old` still is; return whether it was. Changes
        nothing else."""

    async def switches(self, id: ConversationId) -> tuple[TurnId, ...]: ...

    async def save_switches(self, id: ConversationId, switches: Sequence[TurnId]) -> None: ...
    async def forgotten(self, id: ConversationId) -> tuple[bytes, ...]:
        """The effects saved as forgotten for a conversation, 16 bytes each."""

    async def save_forgotten(self, id: ConversationId, effects: Sequence[bytes]) -> None: ...

    # Those whose time is over.
    async def oldest_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        """Live and listed ones, including internal ones, last touched by then, oldest first. Excludes pinned
        ones, and those where a turn runs on any branch, waits, or has ended since."""

    async def oldest_deleted(self, limit: int) -> list[Conversation]:
        """Deleted ones that can be restored, oldest first."""

    async def purge_ended(self, limit: int) -> int:
        """Remove up to `limit` turns, attempts and origins of purged and expired conversations, and the
        previews of their branches; return how many. A turn stays while a branch elsewhere needs it, an origin
        while its branch has turns or another was made from it."""

    # What is stored, by the owner and by all visitors of a link together: see Usage.
    async def count_bytes(self, more: int) -> None:
        """Add bytes to the count of the owner and, for a visitor, of the link. The store itself counts
        conversations, their details and their branches when it saves them, and subtracts what it purges:
        turns, cleared branches, attempts."""

    async def usage(self) -> Usage: ...

    async def bytes_of(self, conversation: ConversationId) -> int:
        """The bytes counted for the branches of a conversation, each in whole blocks."""

    async def link(self) -> Share | None:
        """The link that this owner visits by; None if the owner is no visitor."""
