"""What is stored for an owner, and how it is counted."""

from __future__ import annotations

import msgspec

from turnledger.model.attempt import Attempt
from turnledger.model.conversation import Conversation, ConversationState

BLOCK = 16 * 1024
"""Bytes in which the turns of a branch are counted: a block that is filled in part counts whole."""
ROW = 1024
"""Bytes that a branch or an attempt counts beside what it holds. That of a branch covers short details of its
conversation, too: every conversation has one."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored for an owner."""

    bytes: int
    """Of all turns and the logs of their events, each branch of a conversation in whole blocks of 16 KiB, one
    at least; of titles, metadata and tags beyond 1 KiB, in such blocks; and of attempts kept aside, with
    their journals and logs. Turns that several branches share count once. What was deleted counts until it
    is purged and removed, soon after."""
    chats: int = 0
    """Conversations, deleted ones that can be restored among them."""


def in_blocks(size: int) -> int:
    """Round up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def of_branch(size: int) -> int:
    """Return what a branch counts whose turns and logs take this many bytes."""
    return in_blocks(size + ROW)


def of_details(conversation: Conversation) -> int:
    """Return what title, metadata and tags of a conversation count."""
    size = 0
    if conversation.title:
        size += len(conversation.title.encode())
    if conversation.metadata:
        size += len(msgspec.json.encode(conversation.metadata))
    if conversation.tags:
        size += len(msgspec.json.encode(conversation.tags))
    return in_blocks(size) if size > ROW else 0


def of_chat(conversation: Conversation) -> int:
    """Return 1 for a conversation that is kept, 0 for one that is purged or expired."""
    return int(conversation.state in (ConversationState.LIVE, ConversationState.DELETED))


def of_aside(attempt: Attempt, journal: list[bytes], log: list[bytes]) -> int:
    """Return what an attempt counts that is kept aside with this journal and log."""
    failure = attempt.failure.message if attempt.failure else ""
    texts = len(attempt.partial.encode()) + len(failure.encode())
    return ROW + len(attempt.asked) + texts + sum(map(len, journal)) + sum(map(len, log))
