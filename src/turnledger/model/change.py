"""A change: what an owner is told of as it happens, and the position from which to be told more."""

from __future__ import annotations

import re
from enum import StrEnum
from zlib import crc32

import msgspec

from turnledger.model.conversation import Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId

_TEXT = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{8})")


class ChangeKind(StrEnum):
    """What happened. `start` and `gap` happen to who follows, and to nobody's chats."""

    START = "start"  # from here on everything is told
    GAP = "gap"  # what came before is not known any more: look at everything anew
    CHAT_CREATED = "chat.created"  # it is there: made by itself, or by its first committed turn
    CHAT_CHANGED = "chat.changed"  # title, metadata, tags, pinned, archived: how they are by now comes along
    CHAT_DELETED = "chat.deleted"  # and why
    CHAT_RESTORED = "chat.restored"
    CHAT_SWITCHED = "chat.switched"  # it shows another branch
    TURN_QUEUED = "turn.queued"  # it waits for others
    TURN_RUNNING = "turn.running"
    TURN_COMMITTED = "turn.committed"  # it is history: completed, interrupted or settled
    TURN_FAILED = "turn.failed"  # and with which code
    TURN_STOPPED = "turn.stopped"  # and nothing was kept
    TURN_WITHDRAWN = "turn.withdrawn"  # it waited, and never ran


ABOUT_CHATS = frozenset(
    (
        ChangeKind.CHAT_CREATED,
        ChangeKind.CHAT_CHANGED,
        ChangeKind.CHAT_RESTORED,
        ChangeKind.CHAT_SWITCHED,
    )
)
"""Changes that come with their chat as it is by now."""


class Position(msgspec.Struct, frozen=True):
    """A place in the order of all changes: the number of one, and a mark that tells it from any other that
    may have had this number. Its text is for outside programs, and means nothing to them."""

    number: int = 0
    mark: int = 0

    def __str__(self) -> str:
        return f"{self.number:x}-{self.mark:08x}"

    @classmethod
    def of(cls, text: str) -> Position | None:
        """The position that a text stands for; None if it is none."""
        match = _TEXT.fullmatch(text)
        return cls(int(match[1], 16), int(match[2], 16)) if match else None


class LiveChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change, always thin. Follow it up by its ids for more."""

    kind: ChangeKind
    owner: str
    conversation: ConversationId | None = None
    scope: str = ""
    turn: TurnId | None = None
    branch: BranchId | None = None
    detail: str | None = None
    """How a turn was committed, the code of a failure, why a chat was deleted."""
    at: int = 0
    position: Position = Position()
    chat: Conversation | None = None
    """The chat as it was when this was read, of changes about chats; it is not stored with the change."""


def mark_of(at: int, conversation: bytes, turn: bytes | None) -> int:
    """What tells a stored change from another one of the same number."""
    return crc32(b"%d" % at + conversation + (turn or b""))
