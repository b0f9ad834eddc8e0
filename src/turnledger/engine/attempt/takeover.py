"""Recovery: what every process does on a timer so that no lane stays closed and nothing grows for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnledger.engine.attempt.end import DIED, end_running
from turnledger.engine.feed import PURGED_AT_ONCE, tell_withdrawn
from turnledger.engine.lane.queue import Dead, is_dead
from turnledger.engine.ports import Tables
from turnledger.model.conversation import Branch, Ticket, holds_lane
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt

if TYPE_CHECKING:
    from turnledger.engine.process import Process


@dataclass(frozen=True)
class Left:
    """What was seen of an attempt that nobody seems to run: names its fence, so that taking it over does
    nothing if anything has changed since."""

    owner: str
    conversation: ConversationId
    branch: BranchId
    attempt: TurnId
    fence: int

    @classmethod
    def of(cls, attempt: Attempt, branch: Branch | None) -> Left:
        """With the fence as it is: a holder in doubt may have raised its own."""
        fence = branch.fence if branch else 0
        return cls(attempt.owner, attempt.conversation, attempt.branch, attempt.id, fence)


async def left_by(tables: Tables, lease: LeaseId) -> tuple[list[Left], list[Ticket]]:
    """The running attempts and the tickets that name this lease."""
    left: list[Left] = []
    for attempt in await tables.running_of(lease):
        branch = await tables.branch(attempt.branch)
        left.append(Left.of(attempt, branch))
    return left, await tables.tickets_of(lease)


@dataclass(frozen=True)
class TakeOverRequest:
    left: Left
    now: int
    dead: Dead | None = None
    """By which beat its holder was found dead; None for what this process itself has left."""


async def take_over(tables: Tables, request: TakeOverRequest) -> None:
    """Raise the fence and end the attempt by its policies, in one step. Do nothing if anything had changed,
    or if its holder has shown since that it lives."""
    left = request.left
    branch = await tables.branch(left.branch)
    attempt = await tables.attempt(left.owner, left.attempt)
    if branch is None or attempt is None or not holds_lane(branch, left.attempt, left.fence):
        return
    if request.dead is not None and not await is_dead(tables, attempt.lease, request.dead):
        return
    await end_running(tables, replace(branch, fence=branch.fence + 1), attempt, DIED, request.now)


async def take_over_from(process: Process, left: Left, dead: Dead | None) -> None:
    """End what a dead process has left, or what this one did, and wake those who wait for it."""
    await process.persist(take_over, TakeOverRequest(left, process.clock.now_ms(), dead))
    process.bells.ring(left.conversation)


@dataclass(frozen=True)
class ForgetRequest:
    """Drop the tickets of a dead process, and its lease once nothing names it."""

    lease: LeaseId
    tickets: tuple[TurnId, ...]
    drop_lease: bool
    now: int
    dead: Dead | None = None
    """By which beat the process was found dead; None for what this process itself has left."""


async def forget(tables: Tables, request: ForgetRequest) -> None:
    """Do nothing if the process has shown since that it lives."""
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
        await tell_withdrawn(tables, owner, ticket.conversation, attempt, now)


async def end_lease(tables: Tables, lease: LeaseId) -> None:
    """Drop the own lease, unless something still names it: that must be found through it."""
    if not await _is_named(tables, lease):
        await tables.drop_lease(lease)


async def _is_named(tables: Tables, lease: LeaseId) -> bool:
    return bool(await tables.running_of(lease) or await tables.tickets_of(lease))


@dataclass(frozen=True)
class PurgeRequest:
    due: int
    attempts_kept_ms: int
    limit: int
    tokens_kept_ms: int = 30 * 24 * 3600 * 1000
    changes_kept_ms: int = 3600 * 1000
    changes_kept: int = 100_000


async def purge(tables: Tables, request: PurgeRequest) -> int:
    """Remove a bounded number of rows that nobody can reach any more; return how many."""
    removed = await tables.purge_ended(request.limit)
    removed += await tables.purge_claims(request.due, request.limit)
    removed += await tables.purge_attempts(request.due - request.attempts_kept_ms, request.limit)
    removed += await tables.purge_tokens(request.due - request.tokens_kept_ms, request.limit)
    removed += await tables.purge_shares(request.due - request.tokens_kept_ms, request.limit)
    removed += await tables.purge_changes(
        request.due - request.changes_kept_ms, request.changes_kept, PURGED_AT_ONCE
    )
    return removed
