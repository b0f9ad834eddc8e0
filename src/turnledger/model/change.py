"""A change to an owner's chats, and its position in the feed."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec

from turnledger.model.conversation import Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId


class ChangeKind(StrEnum):
    """What happened. `start` and `gap` concern the reader of the feed, not a chat."""

    START = "start"  # every change from here on follows
    GAP = "gap"  # earlier changes are lost: reload everything
    CHAT_CREATED = "chat.created"  # explicitly, or by its first committed turn
    CHAT_CHANGED = "chat.changed"  # title, metadata, tags, pinned, archived; carries the current values
    CHAT_DELETED = "chat.deleted"  # the detail is the reason
    CHAT_RESTORED = "chat.restored"
    CHAT_SWITCHED = "chat.switched"  # it shows another branch
    TURN_QUEUED = "turn.queued"  # waits for its lane
    TURN_RUNNING = "turn.running"
    TURN_COMMITTED = "turn.committed"  # in the history: completed, interrupted or settled
    TURN_FAILED = "turn.failed"  # the detail is the code
    TURN_STOPPED = "turn.stopped"  # and discarded
    TURN_WITHDRAWN = "turn.withdrawn"  # left the queue without running
    TURN_FLAGGED = "turn.flagged"  # items of a committed turn were hidden or shown


ABOUT_CHATS = frozenset(
    (
        ChangeKind.CHAT_CREATED,
        ChangeKind.CHAT_CHANGED,
        ChangeKind.CHAT_RESTORED,
        ChangeKind.CHAT_SWITCHED,
    )
)
"""Changes that carry the current state of their chat."""


Position = NewType("Position", str)
"""A place in the order of an owner's changes, opaque to all but the store. Later ones sort after earlier
ones; an empty text is none, and sorts before all."""


class LiveChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change. It carries little: fetch the rest by its ids."""

    kind: ChangeKind
    owner: str
    conversation: ConversationId | None = None
    scope: str = ""
    turn: TurnId | None = None
    branch: BranchId | None = None
    detail: str | None = None
    """How a turn was committed, the code of a failure, or why a chat was deleted."""
    at: int = 0
    position: Position = Position("")
    chat: Conversation | None = None
    """The chat as of reading, for changes about chats. It is not stored with the change."""
