"""Entering a turn: waiting for the lane as policy says, then standing in it with a snapshot in hand."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.access.tokens import admission_of
from turnledger.engine.attempt.end import DIED, Ended
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.events.outcome_wait import outcome_of, outcome_so_far
from turnledger.engine.lane.lease import all_leases
from turnledger.engine.lane.queue import Waiter
from turnledger.engine.lane.shield import uninterrupted
from turnledger.engine.lifecycle.moves import Moved
from turnledger.engine.ports import Sync
from turnledger.engine.process.process import Process
from turnledger.engine.turn.begin import AbandonRequest, abandon, begin
from turnledger.engine.turn.finish import end_as_failed
from turnledger.engine.turn.request import (
    Beginning,
    BeginRequest,
    Begun,
    Freed,
    HistoryMoved,
    MustReachDisk,
    Queued,
)
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.snapshot import snapshot
from turnledger.errors import (
    AdmissionMoved,
    ConversationBusy,
    HistoryDiverged,
    LedgerClosed,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TurnAttached,
    TurnledgerError,
    TurnStopped,
    WaitEnded,
)
from turnledger.model.ids import ConversationId

log = logging.getLogger("turnledger")


@dataclass(frozen=True)
class Replayed:
    """Another attempt answers the request: how that ended, and where."""

    ended: Ended
    conversation: ConversationId


async def enter(
    process: Process, request: BeginRequest, on_event: EventSink | None
) -> RunningTurn | Replayed:
    """Begin a turn, or return how the attempt ended that answers this request. While that still runs, a
    request that would rather follow it is told by TurnAttached."""
    beginning = await _begin(process, request)
    while isinstance(beginning, SharedOutcome):
        ended = beginning.ended or await _awaited(process, request, beginning)
        if beginning.ended is not None or beginning.was_waiting or not has_died(ended):
            return Replayed(ended, beginning.conversation)
        # Nobody was left to answer when it came, or since: it is the retry of what the dead one has begun.
        request = _anew(process, request)
        beginning = await _begin(process, request)
    assert not isinstance(beginning, Moved)  # noqa: S101 - it was not asked to
    try:
        if process.is_closed:
            raise LedgerClosed
        running = RunningTurn(process, beginning, await snapshot(process, beginning, request), on_event)
    except BaseException as problem:
        await end_as_failed(process, beginning, problem)
        raise
    fresh = request.target.fresh
    if fresh is not None and fresh.id == running.conversation.id:
        running.has_created = True
    running.is_resent = request.reread is not None
    process.register(running)
    return running


async def _awaited(process: Process, request: BeginRequest, sharing: SharedOutcome) -> Ended:
    """How the attempt ended that answers a request. Raises TurnAttached if that is to be followed."""
    owner, conversation, attempt = request.target.owner, sharing.conversation, sharing.attempt
    if not request.attaches:
        return await outcome_of(process, owner, conversation, attempt)
    ended = await outcome_so_far(process, owner, conversation, attempt)
    if ended is None:
        raise TurnAttached(attempt, conversation)
    return ended


def has_died(ended: Ended) -> bool:
    """Whether it ended with its process, and left nothing that could be an answer."""
    return ended.turn is None and ended.failure is not None and ended.failure.code == DIED.code


def _anew(process: Process, request: BeginRequest) -> BeginRequest:
    """The same request, as if it came now."""
    now = process.clock.now_ms()
    due = process.clock.due_ms()
    return replace(request, now=now, due=due, wait_until=now + request.wait_until - request.now)


async def relocate(process: Process, request: BeginRequest) -> Moved:
    """Wait for the lane as policy says, and move the conversation. Raises TurnStopped if somebody stopped it
    while it waited."""
    moved = await _begin(process, request)
    if isinstance(moved, SharedOutcome):
        raise TurnStopped
    assert isinstance(moved, Moved)  # noqa: S101 - it was asked to
    process.let_go(request.attempt)
    process.bells.ring(moved.branch.conversation)
    return moved


async def _begin(process: Process, request: BeginRequest) -> Begun | SharedOutcome | Moved:
    """Take the lane or find who answers. Cancelled or failed, it leaves no ticket and no lane behind; if
    the store is out of reach, tending does that later."""
    if process.is_closed:
        raise LedgerClosed
    if request.retry is not None and _is_later_try(request):
        await process.deliveries.flush()
    process.mine[request.attempt] = False
    try:
        beginning = await _begin_past_the_dead(process, request)
        if isinstance(beginning, Queued):
            beginning = await _queue(process, request, beginning)
    except BaseException as problem:
        await _give_up(process, request, problem)
        if _was_refused(problem) and not isinstance(problem, AdmissionMoved):
            await _check_still_admitted(process, request)
        raise
    if isinstance(beginning, SharedOutcome):
        process.let_go(request.attempt)
        if beginning.has_ticket:
            await _withdraw(process, request)
    return beginning


async def _queue(process: Process, request: BeginRequest, beginning: Queued) -> Begun | SharedOutcome | Moved:
    process.mine[request.attempt] = True
    answer = None
    try:
        answer = await _stand_in_line(process, request, beginning)
        return answer
    finally:
        if not isinstance(answer, Begun):
            # It may have heard a bell that was meant for whoever is first now.
            process.bells.ring(beginning.ticket.conversation)


async def _stand_in_line(
    process: Process, request: BeginRequest, beginning: Queued
) -> Begun | SharedOutcome | Moved:
    patience_ends = process.clock.monotonic() + process.limits.queue_wait
    ticket = beginning.ticket
    request = replace(request, ticket=ticket)
    place = (not ticket.front, ticket.number)
    with process.bells.enlist(ticket.conversation, place, request.attempt) as waiter:
        while True:
            process.interrupt_here(beginning.interrupted)
            request = replace(request, dead=process.watch.dead_among(beginning.in_the_way))
            # Looked at again once enlisted: what happened before the bell hung must not be missed.
            answer = await _try_begin(process, request)
            if not isinstance(answer, Queued):
                return answer
            beginning = answer
            if not process.watch.dead_among(beginning.in_the_way):
                await _wait(process, waiter, patience_ends)


async def _begin_past_the_dead(process: Process, request: BeginRequest) -> Beginning:
    """Begin, or take a ticket. What dead processes have left refuses nobody: before a request is refused, the
    leases are looked at."""
    try:
        return await _first_begin(process, request)
    except ConversationBusy:
        leases = await process.store.read(all_leases, None)
        dead = process.watch.dead_among([(lease.id, lease.beat) for lease in leases])
        if not dead:
            raise
    return await _try_begin(process, replace(request, dead=dead))


async def _first_begin(process: Process, request: BeginRequest) -> Beginning:
    """The way of most turns: one write that nothing precedes, not even on disk."""
    if request.admitted_until is not None:
        await _check_time(request)
    if request.reread is not None and request.key is None and not _is_later_try(request):
        # Under a key, and of an earlier try, begin may find the answer without asking what the request means.
        with suppress(HistoryDiverged):  # not for good, while a turn runs that its client may know
            request = await request.reread(request, None)
    try:
        beginning = await uninterrupted(process.store.transact(begin, request, Sync.PROCESS))
    except MustReachDisk:
        return await _try_begin(process, replace(request, is_durable=True))
    except AdmissionMoved:
        return await _try_begin(process, await _readmitted(request))
    except (HistoryMoved, OutcomeUnknown, StoreUnavailable):
        return await _try_begin(process, request)
    return await _try_begin(process, request) if isinstance(beginning, Freed) else beginning


async def _try_begin(process: Process, request: BeginRequest) -> Beginning:
    if process.is_closed:
        raise LedgerClosed
    request = replace(request, is_repeated=True)
    while True:
        request = replace(request, now=process.clock.now_ms(), due=process.clock.due_ms())
        await _check_time(request)
        try:
            beginning = await uninterrupted(_persist_begin(process, request))
        except AdmissionMoved:
            request = await _readmitted(request)
            continue
        except HistoryMoved as moved:
            conversation = moved.conversation
        else:
            if not isinstance(beginning, Freed):
                return beginning
            conversation = beginning.conversation
            process.bells.ring(conversation)
        if request.reread is not None:
            request = await request.reread(request, conversation)


async def _check_time(request: BeginRequest) -> None:
    """Raise what a caller is told whose time has run out, be it in the queue: no version rises for that."""
    if request.admitted_until is not None and request.now >= request.admitted_until:
        await _readmitted(request)


async def _readmitted(request: BeginRequest) -> BeginRequest:
    """The same request, of a caller who was looked up again. Raises what he is told if he is not let in."""
    version = None if request.readmit is None else await request.readmit()
    if version in (None, request.admitted):  # looking again would never end
        raise AdmissionMoved
    return replace(request, admitted=version)


async def _check_still_admitted(process: Process, request: BeginRequest) -> None:
    """Who is not let in any more is told that, and nothing of what his request met with."""
    if request.admitted is None:
        return
    version = await process.store.read(admission_of, request.target.owner)
    if version != request.admitted:
        await _readmitted(request)


def _is_later_try(request: BeginRequest) -> bool:
    return request.retry is not None and request.retry.count > 0


async def _persist_begin(process: Process, request: BeginRequest) -> Beginning | Freed:
    if not request.is_durable:
        try:
            return await process.persist(begin, request, Sync.PROCESS)
        except MustReachDisk:
            request = replace(request, is_durable=True)
    return await process.persist(begin, request, Sync.DISK)


async def _wait(process: Process, waiter: Waiter, patience_ends: float) -> None:
    left = patience_ends - process.clock.monotonic()
    if left <= 0:
        raise WaitEnded
    await waiter.wait(min(left, process.limits.lease_time / 4))


async def _give_up(process: Process, request: BeginRequest, problem: BaseException) -> None:
    """Withdraw what a failed begin may have left in the store."""
    has_queued = process.let_go(request.attempt)
    if _was_refused(problem) and not has_queued:
        return
    await _withdraw(process, request)


def _was_refused(problem: BaseException) -> bool:
    return isinstance(problem, TurnledgerError) and not isinstance(problem, StoreError)


async def _withdraw(process: Process, request: BeginRequest) -> None:
    abandoning = AbandonRequest(request.target.owner, request.attempt, process.clock.now_ms())
    try:
        conversation = await uninterrupted(process.persist(abandon, abandoning))
    except (StoreError, LedgerClosed) as error:
        log.warning("a ticket is left to be withdrawn later: %s", error.code)
    else:
        if conversation is not None:
            process.bells.ring(conversation)
