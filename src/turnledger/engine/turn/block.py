"""The block of a turn: acquires the lane in one loop around begin, and leaves by commit or by policy."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from turnledger.engine.access.tokens import admission_of
from turnledger.engine.admission import readmitted
from turnledger.engine.attempt.client_retries import DeliveryNote, is_process_death
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.attempt.outcome import committed_turn, poll_outcome, wait_for_outcome
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.lane.lease_watch import all_leases
from turnledger.engine.lane.shield import uninterrupted
from turnledger.engine.lifecycle.moves import MoveResult
from turnledger.engine.ports import Runner, Sync
from turnledger.engine.process import Process
from turnledger.engine.turn.begin import (
    AcquireRequest,
    Beginning,
    BeginRequest,
    Begun,
    Freed,
    HistoryMoved,
    MustReachDisk,
    Round,
    begin,
)
from turnledger.engine.turn.commit import end_as_failed, leave
from turnledger.engine.turn.queue import AbandonRequest, PlaceInQueue, Queued, QueueSink, abandon
from turnledger.engine.turn.running_turn import OpenTurn, RunningTurn, generator_around
from turnledger.engine.turn.snapshot import snapshot
from turnledger.errors import (
    AdmissionMoved,
    CommitOutcomeUnknown,
    ConversationBusy,
    HistoryDiverged,
    InvalidInput,
    LedgerClosed,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TurnAttached,
    TurnledgerError,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Turn


@dataclass(frozen=True)
class Replayed:
    """Another attempt answers the request: how it ended, and where."""

    ended: Outcome
    conversation: ConversationId


async def enter(
    process: Process, asked: AcquireRequest, on_event: EventSink | None, on_queued: QueueSink | None = None
) -> OpenTurn | Replayed:
    """Begin a turn, or return how the attempt ended that answers this request. Raises TurnAttached if that
    attempt runs and the caller asked to follow it."""
    begun = await acquire(process, asked, on_queued)
    if isinstance(begun, Replayed):
        return begun
    assert isinstance(begun, Begun)  # noqa: S101 - only `relocate` asks for a move
    try:
        if process.is_closed:
            raise LedgerClosed
        fresh = asked.begin.target.fresh
        running = OpenTurn(
            process,
            begun,
            await snapshot(process, begun, asked.context, asked.primer),
            on_event,
            has_created=fresh is not None and fresh.id == begun.conversation.id,
            is_resent=asked.begin.is_resent,
            prefill=asked.resent.prefill if asked.resent is not None else (),
        )
    except BaseException as problem:
        await end_as_failed(process, begun, problem)
        raise
    process.register(running)
    return running


async def relocate(process: Process, asked: AcquireRequest) -> MoveResult:
    """Wait for the lane by policy, then move the conversation. Raises TurnStopped if stopped while
    waiting."""
    moved = await acquire(process, asked)
    assert isinstance(moved, MoveResult)  # noqa: S101 - the request asks for a move
    process.release(asked.begin.attempt)
    process.waiters.notify(moved.branch.conversation)
    return moved


async def append_items(process: Process, asked: AcquireRequest) -> Turn:
    """Wait for the lane by policy, then commit the turn that the request has whole. Raises TurnStopped if
    stopped while waiting."""
    try:
        answer = await acquire(process, asked)
    except OutcomeUnknown as error:
        raise CommitOutcomeUnknown from error
    assert isinstance(answer, Replayed)  # noqa: S101 - no attempt runs
    process.waiters.notify(answer.conversation)
    return committed_turn(answer.ended)


async def acquire(
    process: Process, asked: AcquireRequest, on_queued: QueueSink | None = None
) -> Begun | MoveResult | Replayed:
    """Take the lane, or find the attempt that answers the request.

    Each round sends one begin; every reason for another round is a branch of this loop. Most turns need one
    round: a single write, not even to disk. If cancelled or failed, it leaves no ticket and no lane; if the
    store is unavailable, recovery removes them later.
    """
    request = asked.begin
    place: PlaceInQueue | None = None
    is_in_doubt = is_outcome_unknown = False
    try:
        request = await _first_round(process, asked, request)
        while True:
            try:
                answer = await uninterrupted(_send(process, request))
            except MustReachDisk:
                # This begin does more than take the lane.
                request = _with(request, is_durable=True)
            except HistoryMoved as moved:
                request = await _reread(asked, request, moved.conversation)
            except AdmissionMoved:
                request = await _readmitted(asked, request)
            except ConversationBusy:
                # Turns of dead processes must not refuse a request: check the leases once.
                if request.round.dead:
                    raise
                leases = await process.store.read_whole(all_leases, None)
                dead = process.watch.dead_among([(lease.id, lease.beat) for lease in leases])
                if not dead:
                    raise
                request = _with(request, dead=dead)
            except (OutcomeUnknown, StoreUnavailable) as error:
                # The first begin may have succeeded; only a repeated one recognizes that.
                is_in_doubt = True
                is_outcome_unknown |= isinstance(error, OutcomeUnknown)
                if request.round.is_repeated:
                    if is_outcome_unknown and request.is_final:
                        raise OutcomeUnknown from error
                    raise
            else:
                if isinstance(answer, Begun | MoveResult):
                    if place is not None:
                        place.leave(has_begun=isinstance(answer, Begun))
                    return answer
                if isinstance(answer, Queued):
                    place = place or PlaceInQueue(process, request, on_queued)
                    lapsed = await place.wait(answer)
                    # The next begin may need less, and no disk.
                    request = _with(request, ticket=answer.ticket, dead=lapsed, is_durable=False)
                elif isinstance(answer, Freed):
                    process.waiters.notify(answer.conversation)
                    request = await _reread(asked, request, answer.conversation)
                else:
                    assert isinstance(answer, SharedOutcome)  # noqa: S101 - only `enqueue` asks for a job
                    if place is not None:
                        place.leave()
                    replayed = await _shared(process, asked, answer)
                    if replayed is not None:
                        return replayed
                    request = await _first_round(process, asked, _anew(process, asked.begin))
                    continue
            if process.is_closed:
                raise LedgerClosed
            now, due = process.clock.now_ms(), process.clock.due_ms()
            request = _with(request, now=now, due=due, is_repeated=True)
            await _check_time(asked, request)
    except BaseException as problem:
        if place is not None:
            place.leave()
        if request.attempt in process.attempts:
            await _give_up(process, asked, request, problem, is_in_doubt=is_in_doubt)
        raise


async def _first_round(process: Process, asked: AcquireRequest, request: BeginRequest) -> BeginRequest:
    """Take responsibility for the attempt; return the request for the first round."""
    if process.is_closed:
        raise LedgerClosed
    if _may_be_later_try(request):
        await process.deliveries.flush()
    process.attempts[request.attempt] = False
    await _check_time(asked, request)
    is_later_try = request.retry is not None and request.retry.count
    if asked.resent is not None and request.key is None and not is_later_try:
        # With a key, or on a later try, begin may find the outcome without knowing what the request means.
        with suppress(HistoryDiverged):  # not final while a turn runs that the client may have
            request = await _reread(asked, request, None)
    return request


AT_ONCE = 2
"""Turns of a process up to which a begin does not wait for a batch: more at a time share their writes."""


def _send(process: Process, request: BeginRequest) -> Coroutine[Any, Any, Beginning | Freed]:
    sync = Sync.DISK if request.round.is_durable else Sync.PROCESS
    if not request.round.is_repeated:
        about = request.near if len(process.attempts) <= AT_ONCE else None
        return process.store.transact(begin, request, request.target.owner, sync, about)
    return process.persist(begin, request, request.target.owner, sync)


def _with(request: BeginRequest, **changes: Any) -> BeginRequest:
    return replace(request, round=replace(request.round, **changes))


async def _reread(
    asked: AcquireRequest, request: BeginRequest, conversation: ConversationId | None
) -> BeginRequest:
    """Return the request as it is meant on the current line."""
    if asked.resent is None:
        return request
    return replace(request, content=await asked.resent.read(request.target, conversation))


async def _shared(process: Process, asked: AcquireRequest, sharing: SharedOutcome) -> Replayed | None:
    """Return how the attempt ended that answers a request; None if it died, and this request is its retry.
    Raises TurnAttached if it runs and the caller asked to follow it."""
    request, conversation, attempt = asked.begin, sharing.conversation, sharing.attempt
    process.release(request.attempt)
    if sharing.has_ticket:
        await _withdraw(process, request)
    if request.move is not None:
        raise TurnStopped
    if sharing.outcome is not None:
        return Replayed(sharing.outcome, conversation)
    owner = request.target.owner
    if asked.attaches:
        ended = await poll_outcome(process, owner, conversation, attempt)
        if ended is None:
            raise TurnAttached(attempt, conversation)
    else:
        ended = await wait_for_outcome(process, owner, conversation, attempt)
    if ended.turn is None and is_process_death(ended.failure) and not sharing.was_waiting:
        return None
    return Replayed(ended, conversation)


def _anew(process: Process, request: BeginRequest) -> BeginRequest:
    """Return the same request with the current time."""
    now, due = process.clock.now_ms(), process.clock.due_ms()
    wait_until = now + request.bounds.wait_until - request.round.now
    return replace(request, bounds=replace(request.bounds, wait_until=wait_until), round=Round(now, due))


async def _check_time(asked: AcquireRequest, request: BeginRequest) -> None:
    """Authorize a caller again whose time is over, even in the queue: that does not raise the version."""
    until = asked.authorization.until if asked.authorization is not None else None
    if until is not None and request.round.now >= until:
        await _readmitted(asked, request)


async def _readmitted(asked: AcquireRequest, request: BeginRequest) -> BeginRequest:
    """Return the request after the caller was authorized again. Raises what `readmit` raises."""
    return replace(request, admitted=await readmitted(asked.authorization, request.admitted))


async def _check_still_admitted(process: Process, asked: AcquireRequest, request: BeginRequest) -> None:
    """Raise the authorization error for a revoked caller, in place of the error of its request."""
    if request.admitted is None:
        return
    version = await process.store.read(admission_of, None, request.target.owner)
    if version != request.admitted:
        await _readmitted(asked, request)


def _may_be_later_try(request: BeginRequest) -> bool:
    return request.retry is not None and request.retry.may_be_later


async def _give_up(
    process: Process,
    asked: AcquireRequest,
    request: BeginRequest,
    problem: BaseException,
    *,
    is_in_doubt: bool,
) -> None:
    """Withdraw what a failed begin may have stored, even a refused one after one whose result was lost."""
    was_refused = isinstance(problem, TurnledgerError) and not isinstance(problem, StoreError)
    try:
        if process.attempts[request.attempt] or is_in_doubt or not was_refused:
            await _withdraw(process, request)
    finally:
        process.release(request.attempt)  # last, since a closing ledger waits for it
    if was_refused and not isinstance(problem, AdmissionMoved):
        await _check_still_admitted(process, asked, request)


async def _withdraw(process: Process, request: BeginRequest) -> None:
    abandoning = AbandonRequest(request.attempt, process.clock.now_ms())
    try:
        conversation = await uninterrupted(process.persist(abandon, abandoning, request.target.owner))
    except (StoreError, LedgerClosed) as error:
        process.outage.note(error, "ticket_left", turn=request.attempt)
    else:
        if conversation is not None:
            process.waiters.notify(conversation)


class TurnBlock:
    """A requested turn: a context manager that runs it as a block; or `run` it with a runner. Used once."""

    def __init__(self, process: Process, request: AcquireRequest, on_event: EventSink | None) -> None:
        self._process = process
        self._request = request
        self._on_event = on_event
        self._on_queued: QueueSink | None = None
        self._running: OpenTurn | None = None
        self._is_used = False
        self._is_lost = self._is_unread = False

    def __repr__(self) -> str:
        return f"<TurnBlock {self.id}>"

    @property
    def id(self) -> TurnId:
        """The id of the future turn; `chat.stop(id)` stops it while it waits, too."""
        return self._request.begin.attempt

    @property
    def waits_in(self) -> ConversationId | None:
        """The conversation in whose lane it currently waits, or None."""
        return self._process.waiters.lane_of(self._request.begin.attempt)

    @property
    def prefill(self) -> str:
        """The beginning of the answer, with which a resent history may end."""
        resent = self._request.resent
        return "".join(item.text for item in resent.prefill) if resent is not None else ""

    def when_queued(self, call: QueueSink) -> None:
        """Call this with the conversation once the turn has its place in the queue: `chat.stop(id)` then
        reaches it. Not called if the lane is free, nor while a request with the same idempotency_key waits
        ahead: the turn of that one may answer, under its own id."""
        self._on_queued = call

    def note_delivery(self, *, is_delivered: bool) -> None:
        """Record whether the answer was delivered or lost; see Host.delivered and Host.lost."""
        request = self._request.begin
        if request.retry is None:
            return
        self._is_lost = not is_delivered
        if self._running is not None:
            self._running.undelivered = request.retry.name if self._is_lost else None
        if is_delivered and request.retry.count is None:
            return  # there is no claim to drop
        name, owner = request.retry.name, request.target.owner
        at = self._process.clock.now_ms()
        self._process.deliveries.add(DeliveryNote(owner, name, request.attempt, is_delivered, at))

    def note_unread(self) -> None:
        """Let the turn give way: its client has left; see Host.unread."""
        self._is_unread = self._request.begin.policy.gives_way
        if self._is_unread and self.id in self._process.attempts:
            self._process.unread.add(self.id)
            self._process.check_unread()

    async def __aenter__(self) -> RunningTurn:
        if self._is_used:
            raise InvalidInput("A turn runs once. Call chat.turn() again for another one.")
        self._is_used = True
        on_queued, self._on_queued = self._on_queued, None  # it may refer to this block
        entered = await enter(self._process, self._request, self._on_event, on_queued)
        if isinstance(entered, Replayed):
            raise TurnReplayed(committed_turn(entered.ended), entered.conversation)
        entered.generator = generator_around(sys._getframe(1))
        self._running = entered
        if self._is_lost:
            # Its client left while it waited, when there was no claim to mark.
            self.note_delivery(is_delivered=False)
        if self._is_unread:
            self.note_unread()
        return RunningTurn(entered)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._running is not None  # noqa: S101 - the block was entered
        await leave(self._process, self._running, problem)

    async def run(self, runner: Runner) -> Turn:
        """Run the turn with a runner; return it as committed, by this attempt or an earlier one.

        Raises what the runner raises, and TurnStopped or TurnFailed if the attempt of another caller answers
        and ended so.
        """
        try:
            async with self as running:
                await runner(running)
        except TurnReplayed as replay:
            if self._running is not None:
                raise  # it concerns another turn, which the runner requested
            return replay.turn
        return committed_turn(Outcome(running.state, running.turn))
