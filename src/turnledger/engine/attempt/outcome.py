"""Outcomes: how an attempt ended, read once or waited for, in whatever process it runs.

A waiting process takes over the attempts of a dead one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnledger.engine.attempt.dead_process import AttemptHolder, holder_of, take_over_from
from turnledger.engine.attempt.end import DELETED, Outcome, read_outcome
from turnledger.engine.attempt.give_way import ReaderSign
from turnledger.engine.attempt.stored_events import QueuedTurn, is_shown_in
from turnledger.engine.conversations.flags import is_deleted_response
from turnledger.engine.conversations.read import InfoRequest, read_entry
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
from turnledger.model.catalogue import ChatEntry
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import QUEUED, AttemptState, Failure, Turn

if TYPE_CHECKING:
    from turnledger.engine.process import Process


@dataclass(frozen=True)
class OutcomeRequest:
    attempt: TurnId
    conversation: ConversationId
    """The conversation in which it began."""


async def outcome(tables: Tables, request: OutcomeRequest) -> Outcome | AttemptHolder | QueuedTurn:
    """Return how an attempt ended, its holder, or that it waits as durable work.

    Raises ConversationExpired if its conversation has expired, and Superseded if the outcome is no longer
    known.
    """
    attempt = await tables.attempt(request.attempt)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        try:
            return await read_outcome(tables, request.attempt)
        except Superseded:
            if await tables.job(request.attempt) is not None:
                return QueuedTurn()
            # The purge may have removed its rows; late requests get the same answer as early ones.
            found = await tables.conversation(request.conversation)
            if found is None or found.is_deleted:
                return Outcome(AttemptState.FAILED, failure=DELETED)
            if found.state is ConversationState.EXPIRED:
                raise ConversationExpired from None
            raise
    return await holder_of(tables, attempt)


@dataclass(frozen=True)
class FindOutcomeRequest:
    """Asks for a turn by an id that may not exist."""

    conversation: ConversationId
    turn: TurnId
    now: int


async def find_outcome(
    tables: Tables, request: FindOutcomeRequest
) -> Outcome | AttemptHolder | QueuedTurn | None:
    """Return how a turn of this conversation ended, its holder, or that it waits; None if the conversation
    has no such turn. Raises ConversationDeleted and its like."""
    conversation = await live_conversation(tables, request.conversation, request.now)
    attempt = await tables.attempt(request.turn)
    if attempt is not None and attempt.conversation == conversation.id:
        if attempt.state is AttemptState.RUNNING:
            return await holder_of(tables, attempt)
        return await read_outcome(tables, attempt.id)
    turn = await tables.turn(request.turn)
    if turn is not None:
        is_there = await is_shown_in(tables, turn, conversation)
        return await read_outcome(tables, turn.id) if is_there else None
    ticket = await tables.ticket(request.turn)
    return QueuedTurn() if ticket is not None and ticket.conversation == conversation.id else None


def committed_turn(ended: Outcome) -> Turn:
    """Return the turn of an outcome; raise TurnFailed, TurnStopped or ConversationDeleted without one."""
    if ended.turn is not None:
        return ended.turn
    if ended.state is AttemptState.DISCARDED:
        raise TurnStopped
    failure = ended.failure
    if failure is not None and failure.code == DELETED.code:
        raise ConversationDeleted  # as for the caller that ran it
    reason = failure.message if failure else ""
    remedy = "" if reason.endswith(".") else ". Try again."
    raise TurnFailed(f"The turn failed: {reason}{remedy}" if reason else None)


@dataclass(frozen=True)
class TurnStatus:
    """The state of a turn, and its chat at the same moment."""

    state: str
    """One of AttemptState, or QUEUED."""
    turn: Turn | None
    """None unless it is committed."""
    failure: Failure | None
    chat: ChatEntry
    details: Mapping[str, Any] = field(default_factory=dict)
    """Those it began with, and for a committed turn those that its runner stored."""
    instructions: tuple[Item, ...] | None = None
    """Those that it set, if any."""
    is_deleted_response: bool = False
    """Whether it was deleted as a response, and is in the history all the same."""


async def read_status(tables: Tables, request: FindOutcomeRequest) -> TurnStatus:
    """Return the state of a turn without waiting for it. Raises TurnNotFound, ConversationDeleted etc."""
    found = await find_outcome(tables, request)
    if found is None:
        raise TurnNotFound
    chat = await read_entry(tables, InfoRequest(request.conversation, request.now))
    if isinstance(found, Outcome) and found.turn is not None:
        turn = found.turn
        deleted = await is_deleted_response(tables, turn.id)
        return TurnStatus(found.state, turn, found.failure, chat, turn.details, turn.instructions, deleted)
    if isinstance(found, QueuedTurn):
        job = await tables.job(request.turn)
        details = job.request.details_object if job is not None else {}
        given = job.request.given_instructions if job is not None else None
        return TurnStatus(QUEUED, None, None, chat, details, given.items if given else None)
    attempt = await tables.attempt(request.turn)
    details = attempt.details if attempt is not None else {}
    given = attempt.instructions if attempt is not None else None
    ended = found if isinstance(found, Outcome) else Outcome(AttemptState.RUNNING)
    return TurnStatus(ended.state, None, ended.failure, chat, details, given.items if given else None)


async def wait_for_outcome(
    process: Process, owner: str, conversation: ConversationId, attempt: TurnId
) -> Outcome:
    """Wait until an attempt has ended, wherever it runs; take over if its process is dead."""
    request = OutcomeRequest(attempt, conversation)
    found = await process.store.read(outcome, request, owner)
    if isinstance(found, Outcome):
        return found
    return await _wait(process, conversation, lambda: process.store.read(outcome, request, owner))


async def _wait(
    process: Process,
    conversation: ConversationId,
    look: Callable[[], Awaitable[Outcome | AttemptHolder | QueuedTurn]],
) -> Outcome:
    """Look whenever something may have changed. Take over from a dead holder, and count as a reader of a
    living one."""
    sign = ReaderSign(process)
    with process.waiters.enlist(conversation) as waiter:
        while not isinstance(found := await look(), Outcome):
            if isinstance(found, AttemptHolder):
                if dead := process.watch.dead_among([(found.lease, found.beat)]):
                    await take_over_from(process, found.ref, dead)
                    continue
                await sign.give(found.ref)
            await waiter.wait(process.limits.lease_time / 4)
    return found


async def poll_outcome(
    process: Process, owner: str, conversation: ConversationId, attempt: TurnId
) -> Outcome | None:
    """Return how an attempt ended, or None while it runs; take over if its process is known to be dead."""
    request = OutcomeRequest(attempt, conversation)
    found = await process.store.read(outcome, request, owner)
    if isinstance(found, AttemptHolder) and (dead := process.watch.dead_among([(found.lease, found.beat)])):
        await take_over_from(process, found.ref, dead)
        found = await process.store.read(outcome, request, owner)
    return found if isinstance(found, Outcome) else None


async def wait_for_turn(process: Process, owner: str, conversation: ConversationId, turn: TurnId) -> Outcome:
    """Wait until a turn of a conversation has ended; it may be queued, or not exist; see Chat.outcome."""

    async def look() -> Outcome | AttemptHolder | QueuedTurn:
        if process.is_closed:
            raise LedgerClosed
        request = FindOutcomeRequest(conversation, turn, process.clock.due_ms())
        found = await process.store.read(find_outcome, request, owner)
        if found is None:
            raise TurnNotFound
        return found

    return await _wait(process, conversation, look)
