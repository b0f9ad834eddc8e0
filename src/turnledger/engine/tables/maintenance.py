"""What concerns the rows of all owners: ids in use, rows to remove, the clock, and the index of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from turnledger.model.ids import BranchId, ConversationId, TurnId


class IdRows(Protocol):
    """Ids are unique in the whole store. An import must not take one of any owner."""

    async def is_id_taken(self, id: ConversationId) -> bool: ...
    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        """Those that are ids of turns, attempts or tickets."""

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]: ...


class ClockMark(Struct, frozen=True):
    """The wall clock as compared with the clock that counts from boot. Times are in milliseconds."""

    boot: str
    """Identifies the boot; empty if unknown."""
    boot_at: int
    """Its wall time."""
    since: int
    """The time since boot at which `boot_at` was first computed."""
    trusted_at: int
    """The latest trusted wall time; 0 for none."""


class DueConversation(Struct, frozen=True):
    owner: str
    id: ConversationId


class UnusedBranch(Struct, frozen=True):
    owner: str
    id: BranchId


class CountedTurn(Struct, frozen=True):
    """A turn of any owner, as it is counted."""

    owner: str
    scope: str
    conversation: ConversationId
    id: TurnId
    body: bytes
    log: int
    """The bytes of its event log."""


class MaintenanceRows(Protocol):
    async def owners(self, after: str | None, limit: int) -> list[str]:
        """The owners that store anything, in order, after this one."""

    async def turns_of_all(self, after: TurnId | None, limit: int, max_bytes: int) -> list[CountedTurn]:
        """The next turns after this one, in the order of their ids; none that begins beyond `max_bytes` of
        bodies, but at least one. Must cost no more with many turns before or behind."""

    async def due_conversations(self, now: int, unlisted_by: int, limit: int) -> list[DueConversation]:
        """The first `limit` of each kind, first due first. Those that have lapsed: live, their time without
        interaction is over, not in use. Those to be purged: deleted, and their `purge_at` has come. Those
        never used: live, unlisted, last touched by then, and no turn runs, waits, has ended since, or is to
        be settled."""

    async def purge_ended(self, limit: int) -> int:
        """As ConversationRows.purge_ended, of all owners."""

    async def unused_side_branches(self, used_by: int, limit: int) -> list[UnusedBranch]:
        """Side branches of live conversations that were last used by then, where no turn runs, and from which
        no other branch was made; longest unused first."""

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        """Remove ended attempts of that age with journals and logs, but never an unsettled one."""

    async def purge_claims(self, expired_before: int, limit: int) -> int: ...

    async def index_texts(self, limit: int) -> int:
        """Index up to `limit` turns and titles that are not indexed as they are now; return how many, 0 when
        all are."""

    async def is_index_complete(self) -> bool: ...

    # The clocks as the last process read them.
    async def clock_mark(self) -> ClockMark | None: ...
    async def save_clock_mark(self, mark: ClockMark) -> None: ...

    async def newest_time(self) -> int | None:
        """The time of the newest change or turn; None if there is none."""
