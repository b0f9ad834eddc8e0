"""Outcomes: what became of an attempt, for those who wait for it from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.engine.ending import DELETED, Ended, how_it_ended
from turnledger.engine.ports import Tables
from turnledger.engine.recovery import Left
from turnledger.errors import Superseded, TurnFailed, TurnStopped
from turnledger.model.attempt import AttemptState
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import ConversationId, LeaseId, TurnId
from turnledger.model.turn import Turn


@dataclass(frozen=True)
class OutcomeRequest:
    owner: str
    attempt: TurnId
    conversation: ConversationId
    """Where it began."""


@dataclass(frozen=True)
class Running:
    """It has not ended. `left` is what to take over should the holder be dead."""

    left: Left
    lease: LeaseId
    beat: int | None


async def outcome(tables: Tables, request: OutcomeRequest) -> Ended | Running:
    """How an attempt ended, or who runs it. Raises Superseded if that cannot be told any more."""
    attempt = await tables.attempt(request.owner, request.attempt)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        try:
            return await how_it_ended(tables, request.owner, request.attempt)
        except Superseded:
            if not await _is_deleted(tables, request):
                raise
            # What was left of it is removed by now; who comes later hears the same.
            return Ended(AttemptState.FAILED, failure=DELETED)
    branch = await tables.branch(attempt.branch)
    lease = await tables.lease(attempt.lease)
    return Running(Left.of(attempt, branch), attempt.lease, lease.beat if lease else None)


async def _is_deleted(tables: Tables, request: OutcomeRequest) -> bool:
    found = await tables.conversation(request.owner, request.conversation)
    return found is None or found.state is ConversationState.DELETED


def committed(ended: Ended) -> Turn:
    """The turn of an outcome; raises TurnFailed or TurnStopped where there is none."""
    if ended.turn is not None:
        return ended.turn
    if ended.state is AttemptState.DISCARDED:
        raise TurnStopped
    failure = ended.failure
    raise TurnFailed(f"The turn failed: {failure.message}" if failure else None)
