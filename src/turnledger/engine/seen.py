"""The line that a request was made for, and what begin says when it is another by then."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId, ConversationId, TurnId


class Seen(Struct, frozen=True):
    """The line that a request was made for: a branch, its head, what waits to be settled behind it, and how
    often its owner had changed flags."""

    branch: BranchId
    head: TurnId | None
    unsettled: TurnId | None = None
    flagged: int = 0
    conversation: ConversationId | None = None
    """Whose branch it was; begin looks there first for what a conversation_key names."""
    is_instructed: bool = False
    """Whether the instructions that the request brings are in force behind that head anyway."""

    def is_still(self, branch: Branch) -> bool:
        return self.branch == branch.id and self.head == branch.head and self.unsettled == branch.unsettled


class HistoryMoved(Exception):
    """The line is not the one that the request was made for: it has to be made anew."""

    def __init__(self, conversation: ConversationId) -> None:
        super().__init__()
        self.conversation = conversation


@dataclass(frozen=True)
class Freed:
    """The lane was taken from a dead process, and what became of its turn is written: the request has to be
    made anew. An exception would undo it, and it would be found dead again for ever."""

    conversation: ConversationId


class MustReachDisk(Exception):
    """This begin does more than take the lane: others may be told of it, so it has to survive power loss."""
