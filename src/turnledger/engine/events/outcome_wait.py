"""Awaiting the end of an attempt, wherever it runs; what a dead process has left is ended on the way."""

from __future__ import annotations

from turnledger.engine.attempt.end import Ended
from turnledger.engine.attempt.outcome import OutcomeRequest, Running, SoughtRequest, outcome, sought
from turnledger.engine.attempt.takeover import TakeOverRequest, take_over
from turnledger.engine.lane.queue import Dead
from turnledger.engine.process.process import Process
from turnledger.errors import LedgerClosed, TurnNotFound
from turnledger.model.ids import ConversationId, TurnId


async def outcome_of(process: Process, owner: str, conversation: ConversationId, attempt: TurnId) -> Ended:
    """Wait until an attempt has ended, wherever it runs; take over if its process is dead."""
    request = OutcomeRequest(owner, attempt, conversation)
    found = await process.store.read(outcome, request)
    if isinstance(found, Ended):
        return found
    with process.bells.enlist(conversation) as waiter:
        while True:
            found = await process.store.read(outcome, request)
            if isinstance(found, Ended):
                return found
            if dead := process.watch.dead_among([(found.lease, found.beat)]):
                await _take_over(process, found, dead)
            else:
                await waiter.wait(process.limits.lease_time / 4)


async def outcome_so_far(
    process: Process, owner: str, conversation: ConversationId, attempt: TurnId
) -> Ended | None:
    """How an attempt has ended; take over if its process is known to be dead. None while it runs."""
    request = OutcomeRequest(owner, attempt, conversation)
    found = await process.store.read(outcome, request)
    if isinstance(found, Running) and (dead := process.watch.dead_among([(found.lease, found.beat)])):
        await _take_over(process, found, dead)
        found = await process.store.read(outcome, request)
    return found if isinstance(found, Ended) else None


async def outcome_in(process: Process, owner: str, conversation: ConversationId, turn: TurnId) -> Ended:
    """Wait until a turn of a conversation has ended, which may be queued, or may not be there at all; see
    Chat.outcome."""
    with process.bells.enlist(conversation) as waiter:
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
                await _take_over(process, found, dead)
            else:
                await waiter.wait(process.limits.lease_time / 4)


async def _take_over(process: Process, found: Running, dead: Dead) -> None:
    await process.persist(take_over, TakeOverRequest(found.left, process.clock.now_ms(), dead))
    process.bells.ring(found.left.conversation)
