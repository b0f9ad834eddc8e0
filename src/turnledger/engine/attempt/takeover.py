"""Takeover: end the attempts of dead processes, drop their tickets and leases, and purge old rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnledger.engine.attempt.end import DIED, end_running
from turnledger.engine.feed import PURGED_AT_ONCE, record_withdrawal
from turnledger.engine.lane.queue import Dead, is_dead
from turnledger.engine.ports import Tables
from turnledger.model.conversation import Branch, Ticket, holds_lane
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt

if TYPE_CHECKING:
    from turnledger.engine.process import Process


@dataclass(frozen=True)
class AttemptRef:
    """An attempt whose holder seems dead. Its fence makes a takeover do nothing after any change."""

    owner: str
    conversation: ConversationId
    branch: BranchId
    attempt: TurnId
    fence: int

    @classmethod
    def of(cls, attempt: Attempt, branch: Branch | None) -> AttemptRef:
        """Use the branch's fence: a holder in doubt may have raised it."""
        fence = branch.fence if branch else 0
        return cls(attempt.owner, attempt.conversation, attempt.branch, attempt.id, fence)


async def held_by(tables: Tables, lease: LeaseId) -> tuple[list[AttemptRef], list[Ticket]]:
    refs: list[AttemptRef] = []
    for attempt in await tables.running_attempts(lease):
        branch = await tables.branch(attempt.branch)
        refs.append(AttemptRef.of(attempt, branch))
    return refs, await tables.tickets_of(lease)


@dataclass(frozen=True)
class TakeOverRequest:
    ref: AttemptRef
    now: int
    dead: Dead | None = None
    """The beat by which its holder was found dead; None for an attempt of this process."""


async def take_over(tables: Tables, request: TakeOverRequest) -> None:
    """Raise the fence and end the attempt by its policies, in one transaction. Do nothing if anything has
    changed, or if the holder has renewed its lease since."""
    ref = request.ref
    branch = await tables.branch(ref.branch)
    attempt = await tables.attempt(ref.owner, ref.attempt)
    if branch is None or attempt is None or not holds_lane(branch, ref.attempt, ref.fence):
        return
    if request.dead is not None and not await is_dead(tables, attempt.lease, request.dead):
        return
    await end_running(tables, replace(branch, fence=branch.fence + 1), attempt, DIED, request.now)


async def take_over_from(process: Process, ref: AttemptRef, dead: Dead | None) -> None:
    """End an attempt of a dead process, or of this one, and wake those waiting for it."""
    await process.persist(take_over, TakeOverRequest(ref, process.clock.now_ms(), dead))
    process.waiters.notify(ref.conversation)


@dataclass(frozen=True)
class ForgetRequest:
    lease: LeaseId
    tickets: tuple[TurnId, ...]
    drop_lease: bool
    now: int
    dead: Dead | None = None
    """The beat by which the process was found dead; None for this process."""


async def forget(tables: Tables, request: ForgetRequest) -> None:
    """Drop tickets and lease. Do nothing if the process has renewed its lease since."""
    if request.dead is not None and not await is_dead(tables, request.lease, request.dead):
        return
    for attempt in request.tickets:
        await _withdraw(tables, attempt, request.now)
    if request.drop_lease and not await _is_named(tables, request.lease):
        await tables.bury_lease(request.lease)


async def _withdraw(tables: Tables, attempt: TurnId, now: int) -> None:
    ticket, owner = await tables.ticket(attempt), await tables.owner_of_ticket(attempt)
    await tables.drop_ticket(attempt)
    if ticket is not None and owner is not None:
        await record_withdrawal(tables, owner, ticket.conversation, attempt, now)


async def end_lease(tables: Tables, lease: LeaseId) -> None:
    """Drop this process's lease, unless a row still names it: recovery finds such rows through the lease."""
    if not await _is_named(tables, lease):
        await tables.drop_lease(lease)


async def _is_named(tables: Tables, lease: LeaseId) -> bool:
    return bool(await tables.running_attempts(lease) or await tables.tickets_of(lease))


@dataclass(frozen=True)
class PurgeRequest:
    due: int
    attempts_kept_ms: int
    limit: int
    tokens_kept_ms: int = 30 * 24 * 3600 * 1000
    changes_kept_ms: int = 3600 * 1000
    changes_kept: int = 100_000


async def purge(tables: Tables, request: PurgeRequest) -> int:
    """Remove a bounded number of unreachable rows; return how many."""
    removed = await tables.purge_ended(request.limit)
    removed += await tables.purge_claims(request.due, request.limit)
    removed += await tables.purge_attempts(request.due - request.attempts_kept_ms, request.limit)
    removed += await tables.purge_tokens(request.due - request.tokens_kept_ms, request.limit)
    removed += await tables.purge_shares(request.due - request.tokens_kept_ms, request.limit)
    removed += await tables.purge_changes(
        request.due - request.changes_kept_ms, request.changes_kept, PURGED_AT_ONCE
    )
    return removed
