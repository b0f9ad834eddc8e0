"""The lanes of an owner: attempts with journals and event logs, tickets, and the leases of the processes that
hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from turnledger.model.conversation import Branch, Conversation, Lease, Ticket
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt

BURIED_KEPT = 1_000
"""Leases of dead processes that a store remembers."""


class Lane(Struct, frozen=True):
    """What every begin needs, in one lookup."""

    conversation: Conversation
    branch: Branch
    """The current one."""
    has_lease: bool
    """Whether the lease of the process exists."""
    flag_version: int
    admission: int


class LeaseRows(Protocol):
    """The leases. They belong to processes, not to owners."""

    async def lease(self, id: LeaseId) -> Lease | None: ...
    async def beat(self, id: LeaseId) -> None:
        """Raise the beat of the lease; insert it if there is none."""


class LaneRows(LeaseRows, Protocol):
    async def lane(self, id: ConversationId, lease: LeaseId) -> Lane | None: ...

    async def admission(self) -> int:
        """How often the tokens of this owner have changed; never falls."""

    # Attempts: running ones and those set aside. One that commits is removed: the turn replaces it.
    async def attempt(self, id: TurnId) -> Attempt | None: ...
    async def attempts(self, conversation: ConversationId, limit: int) -> list[Attempt]:
        """Those of a conversation, newest first."""

    async def running_in(self, conversation: ConversationId) -> list[Attempt]:
        """The running ones of a conversation, on all its branches, oldest first."""

    async def add_attempt(self, attempt: Attempt) -> None:
        """Insert; its branch must exist."""

    async def save_attempt(self, attempt: Attempt) -> None:
        """Update state, stop, failure, partial, journaled, fence, lease, reads, ended_at and bytes."""

    async def drop_attempt(self, id: TurnId) -> None: ...

    # Journals: the records of an attempt in order.
    async def journal(self, attempt: TurnId) -> list[bytes]: ...
    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        """Insert records numbered from `first`; keep those that exist."""

    async def drop_journal(self, attempt: TurnId) -> None: ...

    # Event logs of running attempts, and of those set aside.
    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        """At most `limit` chunks numbered from `first`, in order."""

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        """Insert; keep one with that number if it exists. Without the one before it, which a failover may
        lose, change nothing: a log has no gaps."""

    async def drop_log(self, attempt: TurnId) -> None: ...

    # Tickets.
    async def tickets(self, branch: BranchId) -> list[Ticket]:
        """Those of a branch, front tickets first, then by number."""

    async def ticket(self, attempt: TurnId) -> Ticket | None: ...
    async def ticket_for(self, idempotency_key: str) -> Ticket | None:
        """The oldest one that waits under this name of a claim."""

    async def add_ticket(self, ticket: Ticket) -> Ticket:
        """Insert with the next number of its branch, which must exist; return it with that number."""

    async def drop_ticket(self, attempt: TurnId) -> None: ...
    async def move_tickets(self, old: BranchId, new: BranchId) -> None:
        """Append the queue of one branch to that of another, in order."""


class HeldTicket(Struct, frozen=True):
    owner: str
    ticket: Ticket


class HeldRows(LeaseRows, Protocol):
    """All leases, and what their processes hold for any owner."""

    async def leases(self) -> list[Lease]: ...
    async def drop_lease(self, id: LeaseId) -> None:
        """Remove the lease of a process that has ended by itself."""

    async def bury_lease(self, id: LeaseId) -> None:
        """Remove the lease of a process found dead, but remember its last beat: should it come back, its
        beats continue from there, so that no beat occurs twice. Only the last BURIED_KEPT are remembered."""

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]: ...
    async def held_tickets(self, lease: LeaseId) -> list[HeldTicket]: ...
    async def drop_orphaned_tickets(self, lease: LeaseId) -> None:
        """Remove those whose conversation is missing: no owner can."""
