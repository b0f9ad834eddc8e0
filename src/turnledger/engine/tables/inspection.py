"""What only a check of the whole store needs."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from turnledger.model.conversation import Claim, Ticket
from turnledger.model.ids import BranchId, ConversationId, TokenId, TurnId
from turnledger.model.job import TurnJob

Found = TypeVar("Found")


class Owned(Struct, Generic[Found], frozen=True):
    owner: str | None
    """None if the conversation of the row is missing."""
    row: Found


class InspectionRows(Protocol):
    """The ids of all rows, of all owners, in pages. Unreadable rows are included; `after` is the last of the
    previous page."""

    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[Owned[ConversationId]]: ...

    async def all_branches(self, after: BranchId | None, limit: int) -> list[Owned[BranchId]]:
        """In order of creation."""

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[Owned[TurnId]]: ...
    async def all_tickets(self, after: TurnId | None, limit: int) -> list[Owned[Ticket]]: ...
    async def all_jobs(self, after: TurnId | None, limit: int) -> list[Owned[TurnJob]]:
        """In order of id; their owner is that of the conversation."""

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]: ...
    async def all_tokens(self, after: TokenId | None, limit: int) -> list[Owned[TokenId]]:
        """In order of id."""

    async def needed_through(self, branch: BranchId) -> int:
        """The number of the last turn of this branch that a branch made from it needs; 0 for none."""

    async def inconsistencies(self, limit: int) -> list[str]:
        """What is wrong with this store that its tables do not show, each in a sentence: unreachable rows,
        inconsistent counts, a damaged file."""

    async def miscounts(self, limit: int) -> list[str]:
        """Branches and owners whose byte counts do not match their turns, each in a sentence."""

    async def turns_without_checksum(self) -> int:
        """How many turns are from a version without checksums; 0 if the store keeps none."""
