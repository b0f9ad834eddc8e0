"""What a dead process leaves: its attempts are ended, its tickets and lease dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnledger.engine.attempt.end import DIED, Outcome, end_running, log_job_end, outcome_name
from turnledger.engine.attempt.interrupted_job import EXHAUSTED, cause_of_death, leave_to_resume
from turnledger.engine.feed import record_withdrawal
from turnledger.engine.lane.lease_watch import Dead, is_dead
from turnledger.engine.ports import Tables, WholeStore
from turnledger.engine.tables.lanes import HeldTicket
from turnledger.model.conversation import Branch, holds_lane
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.job import MOST_RESUMES
from turnledger.model.turn import Attempt, AttemptState

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
    reads: int | None = None
    """As in the attempt; see give_way."""

    @classmethod
    def of(cls, attempt: Attempt, branch: Branch | None) -> AttemptRef:
        """Use the branch's fence: a holder in doubt may have raised it."""
        fence = branch.fence if branch else 0
        return cls(attempt.owner, attempt.conversation, attempt.branch, attempt.id, fence, attempt.reads)


@dataclass(frozen=True)
class AttemptHolder:
    """A running attempt, and the process that runs it, for the takeover if that is dead."""

    ref: AttemptRef
    lease: LeaseId
    beat: int | None


async def holder_of(tables: Tables, attempt: Attempt) -> AttemptHolder:
    branch = await tables.branch(attempt.branch)
    lease = await tables.lease(attempt.lease)
    return AttemptHolder(AttemptRef.of(attempt, branch), attempt.lease, lease.beat if lease else None)


async def held_by(whole: WholeStore, lease: LeaseId) -> tuple[list[AttemptRef], list[HeldTicket]]:
    refs: list[AttemptRef] = []
    for attempt in await whole.running_attempts(lease):
        branch = await whole.of(attempt.owner).branch(attempt.branch)
        refs.append(AttemptRef.of(attempt, branch))
    return refs, await whole.held_tickets(lease)


@dataclass(frozen=True)
class TakeOverRequest:
    ref: AttemptRef
    now: int
    dead: Dead | None = None
    """The beat by which its holder was found dead; None for an attempt of this process."""


async def take_over(tables: Tables, request: TakeOverRequest) -> Outcome | None:
    """Free the lane of a dead process, in one transaction, and return how its attempt ended. Return None, and
    do nothing, if anything has changed, or if the holder has renewed its lease since."""
    ref = request.ref
    branch = await tables.branch(ref.branch)
    attempt = await tables.attempt(ref.attempt)
    if branch is None or attempt is None or not holds_lane(branch, ref.attempt, ref.fence):
        return None
    if request.dead is not None and not await is_dead(tables, attempt.lease, request.dead):
        return None
    _, ended = await free_of_dead(tables, branch, attempt, request.now)
    return ended


async def free_of_dead(tables: Tables, branch: Branch, attempt: Attempt, now: int) -> tuple[Branch, Outcome]:
    """Raise the fence over the attempt of a dead process, and end it by its policies, or leave it to be
    resumed: then it is still running, and holds the lane."""
    raised = replace(branch, fence=branch.fence + 1)
    if await leave_to_resume(tables, raised, attempt):
        return raised, Outcome(AttemptState.RUNNING)
    return await end_running(tables, raised, attempt, cause_of_death(attempt, DIED), now)


async def take_over_from(process: Process, ref: AttemptRef, dead: Dead | None) -> Outcome | None:
    """End an attempt of a dead process, or of this one, and wake those waiting for it. Return how it ended;
    None if another process was first."""
    request = TakeOverRequest(ref, process.clock.now_ms(), dead)
    ended = await process.persist(take_over, request, ref.owner)
    process.waiters.notify(ref.conversation)
    if ended is not None and ended.state is not AttemptState.RUNNING and dead is not None:
        process.taken_over[outcome_name(ended)] += 1
        if ended.failure == EXHAUSTED:
            log_job_end(ref.attempt, ref.conversation, ended, MOST_RESUMES)
    return ended


@dataclass(frozen=True)
class WithdrawRequest:
    lease: LeaseId
    tickets: tuple[TurnId, ...]
    now: int
    dead: Dead | None = None
    """The beat by which the process was found dead; None for this process."""


async def withdraw(tables: Tables, request: WithdrawRequest) -> None:
    """Drop tickets of a process. Do nothing if it has renewed its lease since."""
    if request.dead is not None and not await is_dead(tables, request.lease, request.dead):
        return
    for attempt in request.tickets:
        ticket = await tables.ticket(attempt)
        await tables.drop_ticket(attempt)
        if ticket is not None:
            await record_withdrawal(tables, ticket.conversation, attempt, request.now)


@dataclass(frozen=True)
class BuryRequest:
    lease: LeaseId
    dead: Dead


async def bury(whole: WholeStore, request: BuryRequest) -> None:
    """Remove the lease of a dead process, unless a row still names it, or it was renewed since."""
    if not await is_dead(whole, request.lease, request.dead):
        return
    await whole.drop_orphaned_tickets(request.lease)
    if not await _is_named(whole, request.lease):
        await whole.bury_lease(request.lease)


async def end_lease(whole: WholeStore, lease: LeaseId) -> None:
    """Drop this process's lease, unless a row still names it: recovery finds such rows through the lease."""
    if not await _is_named(whole, lease):
        await whole.drop_lease(lease)


async def _is_named(whole: WholeStore, lease: LeaseId) -> bool:
    return bool(await whole.running_attempts(lease) or await whole.held_tickets(lease))
