"""Observing: an independent look, inside each transaction, at who held the lane and who asked for a stop."""

from __future__ import annotations

from typing import Any

from turnledger.engine.begin import BeginRequest, Queued
from turnledger.engine.commit import CommitRequest
from turnledger.engine.ports import Operation, Tables
from turnledger.engine.recording import RecordRequest
from turnledger.engine.stops import StopRequest
from turnledger.model.attempt import Attempt
from turnledger.testing.simulation.world import World


def observed(operation: Operation[Any, Any], world: World) -> Operation[Any, Any]:
    """The same operation, with what it shows noted in the world's log."""

    async def watched(tables: Tables, request: Any) -> Any:
        if isinstance(request, RecordRequest):
            return await _fenced(tables, operation, request, request.branch, request.attempt, world)
        if isinstance(request, CommitRequest):
            return await _fenced(tables, operation, request, request.turn.branch, request.turn.id, world)
        result = await operation(tables, request)
        if isinstance(request, BeginRequest) and isinstance(result, Queued) and result.interrupted:
            world.may_be_kept.add(result.interrupted)
        if isinstance(request, StopRequest) and isinstance(result, Attempt):
            world.may_be_kept.add(result.id)
        return result

    return watched


async def _fenced(
    tables: Tables, operation: Operation[Any, Any], request: Any, branch: Any, attempt: Any, world: World
) -> Any:
    """Note a journal write or commit by one who does not hold the lane."""
    before = await tables.branch(branch)
    result = await operation(tables, request)
    after = await tables.branch(branch)
    wrote = isinstance(request, RecordRequest) or before != after
    if wrote and before is not None and (before.running, before.fence) != (attempt, request.fence):
        world.intrusions.append(f"{attempt} wrote while {before.running} held the lane")
    return result
