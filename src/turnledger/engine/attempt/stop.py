"""Stops: record a request to end a turn, deliver it to any process, and wait for the outcome.

The record outlives the process that holds the turn.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnledger.engine.attempt.end import Outcome, end_running, expire_claim, read_outcome
from turnledger.engine.attempt.idempotency import IdempotencyKey, claim_of, find_under_key
from turnledger.engine.attempt.interrupted_job import drop_job
from turnledger.engine.attempt.outcome import wait_for_outcome
from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.feed import record_change
from turnledger.engine.limits import count_set_aside
from turnledger.engine.ports import Tables, WholeStore
from turnledger.errors import Superseded
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import NOBODY, Conversation, Ticket
from turnledger.model.ids import ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt, AttemptState, Failure, OnStop

if TYPE_CHECKING:
    from turnledger.engine.process import Process

POLL_EVERY = 0.05
"""Seconds between two lookups of an attempt whose begin is under way."""


@dataclass(frozen=True)
class StopRequest:
    """Stop an attempt, running or queued: the named one, or the one under a key, or the running one. `policy`
    overrides the turn's."""

    owner: str
    conversation: ConversationId
    attempt: TurnId | None
    policy: OnStop | None
    now: int
    due: int
    key: str | None = None
    """The name of a claim."""


async def request_stop(tables: Tables, request: StopRequest) -> Attempt | Outcome | None:
    """Record the stop. Return the attempt while it runs, how it ended, or None if there is none to stop."""
    conversation = await live_conversation(tables, request.conversation, request.due)
    name = request.attempt
    if request.key is not None:
        named = await find_under_key(tables, request.key)
        name = named.attempt if named is not None else None
    elif name is None:
        branch = await tables.branch(conversation.branch)
        name = branch.running if branch is not None else None
    if name is None:
        return None
    attempt = await tables.attempt(name)
    if attempt is not None and attempt.conversation != conversation.id:
        return None
    if attempt is not None and attempt.state is AttemptState.RUNNING:
        if attempt.stop is None:
            attempt = replace(attempt, stop=request.policy or attempt.on_stop)
            await tables.save_attempt(attempt)
        if attempt.lease == NOBODY:
            return await _stop_unheld(tables, attempt, request.now)
        return attempt
    ticket = await tables.ticket(name)
    if ticket is not None and ticket.conversation == conversation.id:
        return await end_queued(tables, conversation, ticket, request.now)
    return await _outcome_in(tables, request, conversation, name)


async def _outcome_in(
    tables: Tables, request: StopRequest, conversation: Conversation, name: TurnId
) -> Outcome | None:
    """Return how a turn of this conversation ended; None for a turn that is unknown or belongs elsewhere."""
    try:
        ended = await read_outcome(tables, name)
    except Superseded:
        return None
    branch = await tables.branch(ended.turn.branch) if ended.turn is not None else None
    if branch is not None and branch.conversation != conversation.id:
        return None
    return Outcome(ended.state, ended.turn, ended.failure, name)


async def _stop_unheld(tables: Tables, attempt: Attempt, now: int) -> Outcome | Attempt:
    """End durable work that waits to be resumed: no process runs it that could."""
    branch = await tables.branch(attempt.branch)
    if branch is None or branch.running != attempt.id:
        return attempt
    _, ended = await end_running(tables, replace(branch, fence=branch.fence + 1), attempt, None, now)
    return ended


async def end_queued(
    tables: Tables, conversation: Conversation, ticket: Ticket, now: int, failure: Failure | None = None
) -> Outcome:
    """Remove the ticket and record the attempt as discarded before it ran, or as failed."""
    job = await drop_job(tables, ticket.attempt) if ticket.lease == NOBODY else None
    asked = job.request if job is not None else None
    attempt = Attempt(
        id=ticket.attempt,
        owner=conversation.owner,
        conversation=conversation.id,
        branch=ticket.branch,
        lease=ticket.lease,
        fence=0,
        state=AttemptState.DISCARDED if failure is None else AttemptState.FAILED,
        base=None,
        input=asked.input_items if asked else (),
        instructions=asked.given_instructions if asked else None,
        raw_details=asked.raw_details if asked else b"",
        idempotency_key=ticket.idempotency_key,
        stop=OnStop.DISCARD if failure is None else None,
        failure=failure,
        created_at=job.created_at if job is not None else now,
        ended_at=now,
        is_interaction=ticket.is_interaction,
    )
    await tables.drop_ticket(ticket.attempt)
    await tables.add_attempt(await count_set_aside(tables, attempt))
    if ticket.is_interaction:
        await tables.touch_conversation(conversation.id, now)
    if job is not None:
        then = ticket.claimed if failure is not None else None
        await expire_claim(tables, ticket.idempotency_key, ticket.attempt, now, then)
    else:
        await _claim_as_stopped(tables, conversation, ticket, now)
    kind = ChangeKind.TURN_STOPPED if failure is None else ChangeKind.TURN_FAILED
    code = failure.code if failure is not None else None
    await record_change(tables, kind, conversation, now, turn=attempt.id, detail=code)
    return Outcome(attempt.state, failure=failure, id=attempt.id)


async def _claim_as_stopped(tables: Tables, conversation: Conversation, ticket: Ticket, now: int) -> None:
    """Let a retry find that it was stopped, unless another attempt with its key runs or is committed."""
    idempotency_key = ticket.idempotency_key
    if idempotency_key is None:
        return
    earlier = await tables.claim(idempotency_key)
    other = await tables.attempt(earlier.attempt) if earlier else None
    if earlier is not None and (other is None or other.state is not AttemptState.FAILED):
        return
    key = IdempotencyKey(idempotency_key, ticket.fingerprint)
    await tables.save_claim(claim_of(key, conversation, ticket.attempt, now))


async def stops_for(whole: WholeStore, lease: LeaseId) -> dict[TurnId, OnStop | None]:
    """Return the running attempts of a process, with the stop requested for each, if any."""
    return {attempt.id: attempt.stop for attempt in await whole.running_attempts(lease)}


@dataclass(frozen=True)
class LeaseUpdates:
    """Changes by other processes to the turns of this one."""

    stops: dict[TurnId, OnStop | None]
    tickets: frozenset[TurnId]
    """Those that still wait: a missing one was stopped, or its process was taken for dead."""


async def updates_for(whole: WholeStore, lease: LeaseId) -> LeaseUpdates:
    tickets = frozenset(held.ticket.attempt for held in await whole.held_tickets(lease))
    return LeaseUpdates(await stops_for(whole, lease), tickets)


async def stop_turn(process: Process, request: StopRequest) -> Outcome | None:
    """Stop a turn, running or queued in any process; return when it is final. None if there is none."""
    found = await process.persist(request_stop, request, request.owner)
    while found is None and _is_beginning(process, request.attempt):
        # Its begin is not stored yet; the stop must not miss it.
        await asyncio.sleep(POLL_EVERY)
        found = await process.persist(request_stop, request, request.owner)
    if found is None or isinstance(found, Outcome):
        process.waiters.wake(request.attempt if found is None else found.id)
        process.waiters.notify(request.conversation)
        return found
    process.interrupt_here(found.id, found.stop)
    ended = await wait_for_outcome(process, request.owner, request.conversation, found.id)
    return Outcome(ended.state, ended.turn, ended.failure, found.id)


def _is_beginning(process: Process, attempt: TurnId | None) -> bool:
    """Return whether a task of this process has sent the begin and has no result yet."""
    return attempt is not None and process.attempts.get(attempt) is False and attempt not in process.running
