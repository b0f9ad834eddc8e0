"""Abandoning: the transaction of a request that gave up before its turn ran."""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.engine.changes import tell_withdrawn
from turnledger.engine.ending import end_running
from turnledger.engine.ports import Tables
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.ids import ConversationId, TurnId

GAVE_UP = Failure("gave_up", "its caller gave up before it ran")


@dataclass(frozen=True)
class AbandonRequest:
    owner: str
    attempt: TurnId
    now: int


async def abandon(tables: Tables, request: AbandonRequest) -> ConversationId | None:
    """Leave no trace of a request that gave up: its ticket, or the lane if it got it without knowing.
    Returns the conversation it waited for."""
    ticket = await tables.ticket(request.attempt)
    await tables.drop_ticket(request.attempt)
    attempt = await tables.attempt(request.owner, request.attempt)
    if attempt is None and ticket is not None:
        await tell_withdrawn(tables, request.owner, ticket.conversation, ticket.attempt, request.now)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return ticket.conversation if ticket else None
    branch = await tables.branch(attempt.branch)
    if branch is not None and branch.running == attempt.id:
        # It has not run, so there is nothing to keep, unless a stop that came first says so.
        await end_running(tables, branch, attempt, GAVE_UP, request.now, drop=attempt.stop is None)
    return attempt.conversation
