"""A change to an owner's chats, and its position in the feed."""

from __future__ import annotations

import re
from enum import StrEnum
from zlib import crc32

import msgspec

from turnledger.model.conversation import Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId

_TEXT = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{8})")


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


ABOUT_CHATS = frozenset(
    (
        ChangeKind.CHAT_CREATED,
        ChangeKind.CHAT_CHANGED,
        ChangeKind.CHAT_RESTORED,
        ChangeKind.CHAT_SWITCHED,
    )
)
"""Changes that carry the current state of their chat."""


class Position(msgspec.Struct, frozen=True):
    """A place in the order of all changes: a number, and a mark that detects a different change with the same
    number. Its text is opaque to clients."""

    number: int = 0
    mark: int = 0

    def __str__(self) -> str:
        return f"{self.number:x}-{self.mark:08x}"

    @classmethod
    def of(cls, text: str) -> Position | None:
        """Parse a position; return None if the text is not one."""
        match = _TEXT.fullmatch(text)
        return cls(int(match[1], 16), int(match[2], 16)) if match else None


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
    position: Position = Position()
    chat: Conversation | None = None
    """The chat as of reading, for changes about chats. It is not stored with the change."""


def mark_of(at: int, conversation: bytes, turn: bytes | None) -> int:
    return crc32(b"%d" % at + conversation + (turn or b""))
