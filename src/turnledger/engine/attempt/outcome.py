"""Outcomes: how an attempt ended, read once or waited for, in whatever process it runs.

A waiting process takes over the attempts of a dead one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnledger.engine.attempt.end import DELETED, Ended, how_it_ended
from turnledger.engine.attempt.stored_events import Waits, is_in
from turnledger.engine.attempt.takeover import Left, take_over_from
from turnledger.engine.conversations.read import InfoRequest, summary
from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    LedgerClosed,
    Superseded,
    TurnFailed,
    TurnNotFound,
    TurnStopped,
)
from turnledger.model.catalogue import Listed
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import ConversationId, LeaseId, TurnId
from turnledger.model.turn import QUEUED, Attempt, AttemptState, Failure, Turn

if TYPE_CHECKING:
    from turnledger.engine.process import Process


@dataclass(frozen=True)
class OutcomeRequest:
    owner: str
    attempt: TurnId
    conversation: ConversationId
    """The conversation in which it began."""


@dataclass(frozen=True)
class Running:
    """Not ended yet. `left` is for the takeover if its holder is dead."""

    left: Left
    lease: LeaseId
    beat: int | None


async def outcome(tables: Tables, request: OutcomeRequest) -> Ended | Running:
    """Return how an attempt ended, or its holder. Raises ConversationExpired if its conversation has expired,
    and Superseded if the outcome is no longer known."""
    attempt = await tables.attempt(request.owner, request.attempt)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        try:
            return await how_it_ended(tables, request.owner, request.attempt)
        except Superseded:
            # The purge may have removed its rows; late requests get the same answer as early ones.
            found = await tables.conversation(request.owner, request.conversation)
            if found is None or found.is_deleted:
                return Ended(AttemptState.FAILED, failure=DELETED)
            if found.state is ConversationState.EXPIRED:
                raise ConversationExpired from None
            raise
    return await _who_runs(tables, attempt)


async def _who_runs(tables: Tables, attempt: Attempt) -> Running:
    branch = await tables.branch(attempt.branch)
    lease = await tables.lease(attempt.lease)
    return Running(Left.of(attempt, branch), attempt.lease, lease.beat if lease else None)


@dataclass(frozen=True)
class SoughtRequest:
    """Asks for a turn by an id that may not exist."""

    owner: str
    conversation: ConversationId
    turn: TurnId
    now: int


async def sought(tables: Tables, request: SoughtRequest) -> Ended | Running | Waits | None:
    """Return how a turn of this conversation ended, its holder, or that it waits; None if the conversation
    has no such turn. Raises ConversationDeleted and its like."""
    owner = request.owner
    conversation = await live_conversation(tables, owner, request.conversation, request.now)
    attempt = await tables.attempt(owner, request.turn)
    if attempt is not None and attempt.conversation == conversation.id:
        if attempt.state is AttemptState.RUNNING:
            return await _who_runs(tables, attempt)
        return await how_it_ended(tables, owner, attempt.id)
    turn = await tables.turn(owner, request.turn)
    if turn is not None:
        is_there = await is_in(tables, turn, conversation)
        return await how_it_ended(tables, owner, turn.id) if is_there else None
    ticket = await tables.ticket(request.turn)
    return Waits() if ticket is not None and ticket.conversation == conversation.id else None


def committed(ended: Ended) -> Turn:
    """Return the turn of an outcome; raise TurnFailed, TurnStopped or ConversationDeleted without one."""
    if ended.turn is not None:
        return ended.turn
    if ended.state is AttemptState.DISCARDED:
        raise TurnStopped
    failure = ended.failure
    if failure is not None and failure.code == DELETED.code:
        raise ConversationDeleted  # as for the caller that ran it
    raise TurnFailed(f"The turn failed: {failure.message}" if failure else None)


@dataclass(frozen=True)
class Standing:
    """The state of a turn, and its chat at the same moment."""

    state: str
    """One of AttemptState, or QUEUED."""
    turn: Turn | None
    """None unless it is committed."""
    failure: Failure | None
    chat: Listed


async def standing(tables: Tables, request: SoughtRequest) -> Standing:
    """Return the state of a turn without waiting for it. Raises TurnNotFound, ConversationDeleted etc."""
    found = await sought(tables, request)
    if found is None:
        raise TurnNotFound
    chat = await summary(tables, InfoRequest(request.owner, request.conversation, request.now))
    if isinstance(found, Ended):
        return Standing(found.state, found.turn, found.failure, chat)
    return Standing(QUEUED if isinstance(found, Waits) else AttemptState.RUNNING, None, None, chat)


async def outcome_of(process: Process, owner: str, conversation: ConversationId, attempt: TurnId) -> Ended:
    """Wait until an attempt has ended, wherever it runs; take over if its process is dead."""
    request = OutcomeRequest(owner, attempt, conversation)
    found = await process.store.read(outcome, request)
    if isinstance(found, Ended):
        return found
    with process.waiters.enlist(conversation) as waiter:
        while True:
            found = await process.store.read(outcome, request)
            if isinstance(found, Ended):
                return found
            if dead := process.watch.dead_among([(found.lease, found.beat)]):
                await take_over_from(process, found.left, dead)
            else:
                await waiter.wait(process.limits.lease_time / 4)


async def outcome_so_far(
    process: Process, owner: str, conversation: ConversationId, attempt: TurnId
) -> Ended | None:
    """Return how an attempt ended, or None while it runs; take over if its process is known to be dead."""
    request = OutcomeRequest(owner, attempt, conversation)
    found = await process.store.read(outcome, request)
    if isinstance(found, Running) and (dead := process.watch.dead_among([(found.lease, found.beat)])):
        await take_over_from(process, found.left, dead)
        found = await process.store.read(outcome, request)
    return found if isinstance(found, Ended) else None


async def outcome_in(process: Process, owner: str, conversation: ConversationId, turn: TurnId) -> Ended:
    """Wait until a turn of a conversation has ended; it may be queued, or not exist; see Chat.outcome."""
    with process.waiters.enlist(conversation) as waiter:
        while True:
            if process.is_closed:
                raise LedgerClosed
            request = SoughtRequest(owner, conversation, turn, process.clock.due_ms())
            found = await process.store.read(sought, request)
            if isinstance(found, Ended):
                return found
            if found is None:
                raise TurnNotFound
            if isinstance(found, Running) and (dead := process.watch.dead_among([(found.lease, found.beat)])):
                await take_over_from(process, found.left, dead)
            else:
                await waiter.wait(process.limits.lease_time / 4)
