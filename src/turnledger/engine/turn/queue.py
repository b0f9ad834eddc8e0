"""The queue of a lane: who goes before a request, the ticket that it takes, how it waits, and gives up.

Tickets are numbered by the store. Those of dead processes and those past their deadline are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from turnledger.engine.attempt import idempotency
from turnledger.engine.attempt.end import end_running
from turnledger.engine.attempt.idempotency import NewAttempt
from turnledger.engine.attempt.interrupted_job import add_job
from turnledger.engine.feed import record_change, record_withdrawal
from turnledger.engine.lane.lease_watch import Dead, beat_of, is_dead
from turnledger.engine.ports import Tables
from turnledger.engine.process import Process, Waiter
from turnledger.errors import ConversationBusy, QueueFull, WaitEnded
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import FOR_EVER, NOBODY, Branch, Conversation, Ticket
from turnledger.model.ids import ConversationId, LeaseId, TurnId
from turnledger.model.job import TurnJob
from turnledger.model.turn import Attempt, AttemptState, Failure, OnBusy, OnStop

if TYPE_CHECKING:
    from turnledger.engine.turn.begin import BeginRequest


QueueSink: TypeAlias = Callable[[ConversationId], None]
"""Is called with the conversation in whose lane a turn waits."""


async def queue_before(
    tables: Tables, branch: Branch, attempt: TurnId, *, front: bool, dead: Dead, now: int
) -> tuple[list[Ticket], Ticket | None]:
    """Return the live tickets that go before this attempt, and its own ticket if it has one.

    Skips tickets of dead processes and those past their wait's deadline. A front request passes all
    tickets but earlier front ones.
    """
    before: list[Ticket] = []
    if branch.last_ticket == 0:
        return before, None  # no ticket was ever issued here
    for ticket in await tables.tickets(branch.id):
        if ticket.attempt == attempt:
            return before, ticket
        if ticket.deadline <= now or await is_dead(tables, ticket.lease, dead):
            continue
        if ticket.front or not front:
            before.append(ticket)
    return before, None


@dataclass(frozen=True)
class Queued:
    """Others go first. `in_the_way` are the leases whose death would change that."""

    ticket: Ticket
    in_the_way: tuple[tuple[LeaseId, int | None], ...]
    interrupted: Attempt | None
    """The running attempt that it stops, with the recorded policy."""
    is_repeated: bool = False
    """Whether a request with the same key waits ahead: its attempt may answer this one."""


@dataclass(frozen=True)
class Enqueued:
    """The turn is durable work, and waits or has begun."""

    attempt: TurnId
    conversation: ConversationId


class Ahead(NamedTuple):
    """What goes before a request, which has its own ticket already or not."""

    running: Attempt | None
    tickets: list[Ticket]
    own: Ticket | None


async def ahead_of(tables: Tables, branch: Branch, request: BeginRequest) -> Ahead | None:
    """Return what goes before a request; None if the lane is free for it."""
    front = request.policy.goes_first
    tickets, own = await queue_before(
        tables, branch, request.attempt, front=front, dead=request.round.dead, now=request.round.due
    )
    running = await tables.attempt(branch.running) if branch.running else None
    return Ahead(running, tickets, own) if running is not None or tickets else None


def check_room(request: BeginRequest, ahead: Ahead) -> None:
    """Raise ConversationBusy if the request does not wait, and QueueFull if too many do."""
    if request.policy.on_busy is OnBusy.REJECT:
        raise ConversationBusy
    if len(ahead.tickets) >= request.bounds.queue_limit:
        raise QueueFull


async def wait_behind(
    tables: Tables,
    ahead: Ahead,
    conversation: Conversation,
    branch: Branch,
    request: BeginRequest,
    verdict: NewAttempt,
) -> Queued:
    """Give the request a ticket, if it has none, and stop the running turn if it goes first."""
    running, tickets, own = ahead
    if own is None:
        own = await tables.add_ticket(_ticket(branch, request, verdict))
        if request.move is None:
            await record_change(
                tables, ChangeKind.TURN_QUEUED, conversation, request.round.now, turn=own.attempt
            )
    is_stopped = running is not None and request.policy.goes_first
    if running is not None and is_stopped and running.stop is None:
        policy = OnStop.KEEP if request.policy.on_busy is OnBusy.INTERRUPT else OnStop.DISCARD
        running = replace(running, stop=policy)
        await tables.save_attempt(running)
    leases = [ticket.lease for ticket in tickets] + ([running.lease] if running else [])
    seen = [(lease, await beat_of(tables, lease)) for lease in dict.fromkeys(leases)]
    is_repeated = request.key is not None and request.key.text in [each.idempotency_key for each in tickets]
    return Queued(own, tuple(seen), running if is_stopped else None, is_repeated)


async def enqueue(
    tables: Tables, conversation: Conversation, branch: Branch, request: BeginRequest, verdict: NewAttempt
) -> Enqueued:
    """Store the request with a place in the queue that belongs to no process, and claim its key."""
    assert request.job is not None  # noqa: S101 - for the type checker
    tickets = await tables.tickets(branch.id) if branch.last_ticket else []
    waiting = [ticket for ticket in tickets if ticket.lease == NOBODY]
    if len(waiting) >= request.bounds.queue_limit or await tables.count_jobs() >= request.bounds.owner_jobs:
        raise QueueFull
    attempt, now = request.attempt, request.round.now
    ticket = _ticket(branch, request, verdict)
    await tables.add_ticket(replace(ticket, front=False, lease=NOBODY, deadline=FOR_EVER))
    await add_job(
        tables,
        TurnJob(
            id=attempt,
            owner=conversation.owner,
            conversation=conversation.id,
            created_at=now,
            body=request.job,
        ),
    )
    if request.key is not None:
        claim = idempotency.claim_of(request.key, conversation, attempt, now)
        await tables.save_claim(replace(claim, expires_at=None))
    if request.policy.is_interaction and conversation.may_lapse:
        await tables.touch_conversation(conversation.id, now)
    await record_change(tables, ChangeKind.TURN_QUEUED, conversation, now, turn=attempt)
    return Enqueued(attempt, conversation.id)


def _ticket(branch: Branch, request: BeginRequest, verdict: NewAttempt) -> Ticket:
    return Ticket(
        attempt=request.attempt,
        conversation=branch.conversation,
        branch=branch.id,
        front=request.policy.goes_first,
        lease=request.lease,
        deadline=request.bounds.wait_until,
        idempotency_key=request.key.text if request.key else None,
        fingerprint=request.key.fingerprint if request.key else _retried(request),
        claimed=verdict.claim.attempt if verdict.claim else None,
        is_interaction=request.policy.is_interaction,
    )


def _retried(request: BeginRequest) -> bytes:
    retry = request.retry
    return retry.name.encode() if retry is not None and retry.may_be_later else b""


class PlaceInQueue:
    """How a request waits in its process, from its first ticket on."""

    def __init__(self, process: Process, request: BeginRequest, on_queued: QueueSink | None) -> None:
        self._process = process
        self._attempt = request.attempt
        self._on_queued = on_queued
        self._conversation: ConversationId | None = None
        self._enlisted: ExitStack
        self._waiter: Waiter
        self._patience_ends: float

    async def wait(self, queued: Queued) -> Dead:
        """Wait until another begin is worthwhile; return the leases ahead that have lapsed. The first call
        only registers: a change before that must not be missed. Raises WaitEnded."""
        process = self._process
        if self._conversation is None:
            self._enlist(queued)
        elif not process.watch.dead_among(queued.in_the_way):
            left = self._patience_ends - process.clock.monotonic()
            if left <= 0:
                raise WaitEnded
            await self._waiter.wait(min(left, process.limits.lease_time / 4))
        if queued.interrupted is not None:
            process.interrupt_here(queued.interrupted.id, queued.interrupted.stop)
        process.check_unread()
        return process.watch.dead_among(queued.in_the_way)

    def _enlist(self, queued: Queued) -> None:
        process, ticket = self._process, queued.ticket
        process.attempts[self._attempt] = True
        self._patience_ends = process.clock.monotonic() + process.limits.queue_wait
        self._conversation, self._enlisted = ticket.conversation, ExitStack()
        place = (not ticket.front, ticket.number)
        listening = process.waiters.enlist(ticket.conversation, place, self._attempt)
        self._waiter = self._enlisted.enter_context(listening)
        if self._on_queued is not None and not queued.is_repeated:
            self._on_queued(ticket.conversation)

    def leave(self, *, has_begun: bool = False) -> None:
        if self._conversation is None:
            return
        conversation, self._conversation = self._conversation, None
        self._enlisted.close()
        if not has_begun:
            # It may have consumed a ring that was meant for the next in line.
            self._process.waiters.notify(conversation)


GAVE_UP = Failure("gave_up", "its caller gave up before it ran")


@dataclass(frozen=True)
class AbandonRequest:
    attempt: TurnId
    now: int


async def abandon(tables: Tables, request: AbandonRequest) -> ConversationId | None:
    """Remove the ticket of a request that gave up, or free the lane that it took unknowingly. Return the
    conversation it waited for."""
    ticket = await tables.ticket(request.attempt)
    await tables.drop_ticket(request.attempt)
    attempt = await tables.attempt(request.attempt)
    if attempt is None and ticket is not None:
        await record_withdrawal(tables, ticket.conversation, ticket.attempt, request.now)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return ticket.conversation if ticket else None
    branch = await tables.branch(attempt.branch)
    if branch is not None and branch.running == attempt.id:
        # It has not run, so there is nothing to keep, unless an earlier stop demands it.
        await end_running(tables, branch, attempt, GAVE_UP, request.now, drop=attempt.stop is None)
    return attempt.conversation
