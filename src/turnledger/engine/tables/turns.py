"""The history of an owner: branches, turns, and the flags of their items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from turnledger.model.conversation import Branch, NewBranch, Origin, Stretch
from turnledger.model.flags import Flags, FlagsByTurn
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Turn


class TurnRows(Protocol):
    # Branches.
    async def branch(self, id: BranchId) -> Branch | None: ...
    async def add_branch(self, branch: Branch) -> None:
        """Insert; its conversation must exist."""

    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        """Insert branches of a conversation that was just added, with their origins and turns. All other
        writers wait, so a store needs as few steps as possible."""

    async def save_branch(self, branch: Branch) -> None:
        """Update all but id, conversation, start and last_ticket, which rises with each ticket added."""

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        """The branch that the conversation was created with."""

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        """Those of a conversation, newest first, after `before` in that order."""

    async def add_origin(self, origin: Origin) -> None:
        """Insert; its branch and those of its line must exist."""

    async def origin(self, branch: BranchId) -> Origin | None: ...
    async def origins(self, conversation: ConversationId, base: TurnId | None, limit: int) -> list[Origin]:
        """Those of the branches that a conversation made from this turn, oldest first, without side
        branches."""

    async def has_offshoots(self, branch: BranchId) -> bool:
        """Whether another branch was made from a turn of this one."""

    async def drop_turns(self, branch: BranchId, after: int) -> int:
        """Remove its own turns with a higher number, with logs and flags; return the bytes of bodies and logs
        removed. The caller counts them and saves the branch."""

    async def drop_branch(self, id: BranchId) -> None:
        """Remove a branch that has no turns of its own, its origin and the ended attempts on it, and subtract
        their bytes."""

    async def empty_branches_at(self, turn: Turn, limit: int) -> list[BranchId]:
        """The branches made from this turn, in any conversation, that have no turns of their own."""

    # Turns: never updated. Only those of an ended conversation or of an unused side branch are removed.
    async def turn(self, id: TurnId) -> Turn | None: ...
    async def turns(self, branch: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        """Turns numbered after < number <= through, the last `limit` of them, in order of number."""

    async def turns_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        """All turns of these stretches, in order of number."""

    async def effects_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        """The turns of these stretches that are carried to other branches (Turn.is_carried), in order of
        number. They are few: it must cost less than reading all turns."""

    async def add_turn(self, turn: Turn, log: bytes = b"") -> None: ...

    async def turn_log(self, id: TurnId) -> bytes:
        """The event log of a turn; empty if it has none."""

    # Flags of items. Purged with their turn.
    async def flags(self, turns: Sequence[TurnId]) -> FlagsByTurn:
        """Those of these turns; turns without flags are left out."""

    async def flags_in(self, stretches: Sequence[Stretch]) -> FlagsByTurn:
        """Those of the turns of these stretches. They are few: it must cost less than reading all turns."""

    async def save_flags(self, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        """Replace those of an existing turn, and raise the owner's flag version."""

    async def flag_version(self) -> int:
        """How often flags of this owner were saved; never falls."""
