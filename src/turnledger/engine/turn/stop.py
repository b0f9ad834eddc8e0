"""Stopping: record the stop, deliver it if the turn is here, and wait for the outcome that won."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from turnledger.engine.attempt.end import Ended
from turnledger.engine.attempt.stop_record import StopRequest, request_stop
from turnledger.engine.events.outcome_wait import outcome_of
from turnledger.engine.process.process import FIRST_DELAY, Process
from turnledger.model.ids import TurnId


async def stop_turn(process: Process, request: StopRequest) -> Ended | None:
    """Stop a turn, wherever it runs or waits; return when it is final. None if nothing was there to stop."""
    found = await process.persist(request_stop, request)
    while found is None and _is_beginning(process, request.attempt):
        # The store does not know it yet, but will: it must not slip through.
        await asyncio.sleep(FIRST_DELAY)
        found = await process.persist(request_stop, request)
    if found is None or isinstance(found, Ended):
        process.bells.wake(request.attempt)
        process.bells.ring(request.conversation)
        return found
    process.interrupt_here(found.id, found.stop)
    ended = await outcome_of(process, request.owner, request.conversation, found.id)
    return replace(ended, id=found.id)


def _is_beginning(process: Process, attempt: TurnId | None) -> bool:
    """Whether a task here is sending its begin, and has no answer yet."""
    return attempt is not None and process.mine.get(attempt) is False and attempt not in process.running
