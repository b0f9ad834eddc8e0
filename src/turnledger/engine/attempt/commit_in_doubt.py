"""A commit whose result was lost: make its outcome certain before reporting it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.ports import Tables
from turnledger.model.ids import BranchId, LeaseId, TurnId
from turnledger.model.turn import Turn, TurnKind


@dataclass(frozen=True)
class DoubtRequest:
    """Asks for the outcome of a commit whose result was lost."""

    branch: BranchId
    attempt: TurnId
    lease: LeaseId
    """Of the process that asks: durable work may meanwhile run in another, under the same id."""


@dataclass(frozen=True)
class Certainty:
    """The outcome: the committed turn, or a new fence under which the holder may try again."""

    turn: Turn | None
    fence: int | None


async def resolve_doubt(tables: Tables, request: DoubtRequest) -> Certainty:
    """Make a commit of unknown outcome certain: raise the fence first, so that the write cannot appear later,
    then read. If the attempt was ended or taken over elsewhere, only read."""
    branch = await tables.branch(request.branch)
    attempt = await tables.attempt(request.attempt)
    is_held = attempt is not None and attempt.lease == request.lease
    if is_held and branch is not None and branch.running == request.attempt:
        raised = replace(branch, fence=branch.fence + 1)
        await tables.save_branch(raised)
        return Certainty(None, raised.fence)
    return Certainty(await committed_turn(tables, request.attempt), None)


async def committed_turn(tables: Tables, id: TurnId) -> Turn | None:
    """Return the turn if this attempt itself committed it, not what others settled or kept of it."""
    turn = await tables.turn(id)
    return turn if turn is not None and turn.kind is TurnKind.COMPLETED else None
