"""Commit: the transaction that adds a turn to the history; and how the block of a turn is left.

A block that ends well commits, and repeats the commit while its result is lost. Every other exit ends the
attempt by its policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt.client_retries import DeliveryNote, record_deliveries
from turnledger.engine.attempt.commit_in_doubt import DoubtRequest, committed_turn, resolve_doubt
from turnledger.engine.attempt.end import CLAIM_KEPT_MS, EndRequest, Outcome, end
from turnledger.engine.attempt.fork import open_branch, place_of
from turnledger.engine.attempt.interrupted_job import drop_job
from turnledger.engine.conversations.list_entry import update_entry
from turnledger.engine.feed import record_commit
from turnledger.engine.history.history import History, LatestLine
from turnledger.engine.lane.shield import is_cancelled, uninterrupted
from turnledger.engine.limits import store_turn
from turnledger.engine.ports import Tables
from turnledger.engine.process import FIRST_DELAY, Process
from turnledger.engine.turn.begin import Begun
from turnledger.errors import (
    CommitOutcomeUnknown,
    ConversationDeleted,
    ConversationExpired,
    LedgerClosed,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    Superseded,
    TurnledgerError,
    TurnStopped,
)
from turnledger.model.conversation import Branch, Conversation, holds_lane
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import Attempt, AttemptState, Failure, Fork, OnStop, Turn, preview_of

if TYPE_CHECKING:
    from turnledger.engine.turn.running_turn import OpenTurn


NO_FLAGS: Mapping[int, Flags] = {}


class CommitRequest(Struct, frozen=True, kw_only=True):
    """A complete turn, the lane it holds and the head it ran on."""

    attempt: Attempt
    """The attempt as it began."""
    lane: BranchId
    head: TurnId | None
    """The head of the lane's branch."""
    turn: Turn
    fence: int
    fork: Fork | None
    """Its place, if not behind that head."""
    pending: tuple[Item, ...]
    instructed: int = 0
    """Number of the turn whose instructions are in force after this one."""
    journaled: int
    now: int
    log: bytes = b""
    is_flushed: bool = False
    home: Conversation | None = None
    """The conversation as begin read it; read again if not given."""
    undelivered: str | None = None
    """The name of its request, if that has no idempotency_key and its client has left."""


async def commit(tables: Tables, request: CommitRequest) -> Turn:
    """Make the turn the head, if fence and head are unchanged. Repeating it returns the same turn."""
    turn, attempt = request.turn, request.attempt
    branch = await tables.branch(request.lane)
    if branch is None or not may_commit(branch, request):
        committed = await committed_turn(tables, turn.id)
        if committed is None:
            raise Superseded
        return committed
    asked = NO_FLAGS
    if request.fork is not None:
        branch, asked = await _diverge(tables, branch, attempt.owner, request.fork)
    stored = await store_turn(tables, branch, turn, request.log)
    if asked:
        await tables.save_flags(turn.id, asked)
    preview = preview_of(turn, hidden_among(asked)) or branch.preview  # hidden items do not show
    await tables.save_branch(behind(branch, request, stored, preview))
    await tables.drop_attempt(turn.id)
    if request.journaled:
        await tables.drop_journal(turn.id)
    if request.is_flushed:
        await tables.drop_log(turn.id)
    if attempt.is_durable:
        await drop_job(tables, turn.id)
    if attempt.idempotency_key is not None:
        claim = await tables.claim(attempt.idempotency_key)
        if claim is not None and claim.attempt == turn.id:
            await tables.save_claim(replace(claim, expires_at=request.now + CLAIM_KEPT_MS))
    if request.undelivered is not None:
        # A retry that waits for the lane reads at once, and must find this.
        await record_deliveries(
            tables,
            [DeliveryNote(attempt.owner, request.undelivered, turn.id, is_delivered=False, at=request.now)],
        )
    home = request.home or await tables.conversation(attempt.conversation)
    if home is not None and not home.is_entry_complete:
        at = request.now if attempt.is_interaction else None
        home = await update_entry(tables, home.id, branch, turn, at, hidden_among(asked))
    elif attempt.is_interaction:
        await tables.touch_conversation(attempt.conversation, request.now)
    await record_commit(tables, home, turn, has_moved=request.fork is not None)
    return turn


def behind(branch: Branch, request: CommitRequest, stored: int, preview: str) -> Branch:
    """Return the branch with the turn as its head and its lane free. `stored` is its size in bytes."""
    turn = request.turn
    return replace(
        branch,
        head=turn.id,
        length=turn.number,
        running=None,
        pending=request.pending,
        instructed=request.instructed,
        bytes=stored,
        preview=preview,
        used_at=branch.used_at and max(branch.used_at, request.now),
    )


def hidden_among(asked: Mapping[int, Flags]) -> Collection[int]:
    return [place for place, flags in asked.items() if not flags.to_user] if asked else ()


async def _diverge(
    tables: Tables, lane: Branch, owner: str, fork: Fork
) -> tuple[Branch, Mapping[int, Flags]]:
    """Free the lane; return the branch made for the turn, and the flags of its input."""
    await tables.save_branch(replace(lane, running=None))
    place = await place_of(tables, lane, fork)
    return await open_branch(tables, lane, place), place.input_flags


def may_commit(branch: Branch, request: CommitRequest) -> bool:
    """Return whether the lane is still held, and the turn ran on the current head. The fence alone suffices;
    the head is checked for safety."""
    return holds_lane(branch, request.turn.id, request.fence) and ran_on_head(branch, request)


def ran_on_head(branch: Branch, request: CommitRequest) -> bool:
    return branch.head == request.head


SUPERSEDED = Failure("superseded", "another process took its lane")
UNKNOWN = " ".join((CommitOutcomeUnknown.__doc__ or "").split())
LONGEST_DELAY = 1.0
"""The most seconds between two tries of a commit."""
UNRECORDED = "The turn was stopped, but its end could not be recorded yet. Read its outcome later."
MESSAGE_LIMIT = 500
"""Characters of an exception's message kept with a failed attempt."""


async def leave(process: Process, running: OpenTurn, problem: BaseException | None) -> None:
    """End a turn whose block was left. Raises TurnStopped for a stop from elsewhere, or the error of the
    commit; the caller raises `problem` itself.

    Every CancelledError raised here states what is in the history: see errors.turn_of.
    """
    try:
        if running.is_leaving:
            await _leave_ended(running, problem)
        else:
            await _leave(process, running, problem)
    except asyncio.CancelledError as cancelled:
        _tell_outcome(process, cancelled, running.id, running.turn)
        raise
    if isinstance(problem, asyncio.CancelledError):
        _tell_outcome(process, problem, running.id, running.turn)


def _tell_outcome(process: Process, cancelled: asyncio.CancelledError, id: TurnId, turn: Turn | None) -> None:
    """Add to the cancellation what is in the history, for errors.turn_of and as a note."""
    unknown = cancelled.__context__ if isinstance(cancelled.__context__, CommitOutcomeUnknown) else None
    if unknown is None and turn is None and _may_be_kept(process, id):
        unknown = CommitOutcomeUnknown(
            "The store has not confirmed the end of the turn. Read the history to see whether it is there."
        )
    if turn is not None:
        note = f"{id} is in the history, {turn.kind}."
    elif unknown is not None:
        note = f"Whether {id} is in the history is not known yet."
    else:
        note = f"{id} is not in the history."
    cancelled.turn, cancelled.unknown = turn, unknown  # type: ignore[attr-defined]
    cancelled.add_note(note)


def _may_be_kept(process: Process, id: TurnId) -> bool:
    """Return whether the end of this attempt is not stored yet, and may keep it."""
    request, running = process.unfinished.get(id, (None, None))
    if request is None:
        return False
    if request.failure is None:
        return request.on_stop is not OnStop.DISCARD
    return running is None or running.is_kept_on_failure


async def _leave(process: Process, running: OpenTurn, problem: BaseException | None) -> None:
    running.is_leaving = True
    try:
        if running.has_lost_lane:
            await _leave_superseded(process, running, problem)
        elif running.stop_requested is not None:
            await _leave_stopped(process, running, problem)
        elif not ended_well(problem):
            assert problem is not None  # noqa: S101 - for the type checker
            ended = await uninterrupted(_end(process, running, failure_of(problem), None))
            gone = _as_gone(ended) if isinstance(problem, Superseded) else None
            if gone is not None:
                raise gone from None
        else:
            await uninterrupted(_commit(process, running))
    finally:
        _let_go(process, running)


async def _leave_ended(running: OpenTurn, problem: BaseException | None) -> None:
    """Leave the block of a turn that was ended before."""
    other = await _other_reason(running, problem)
    if running.ending is not None:
        await uninterrupted(asyncio.wait((running.ending,)))
    if other is None:
        raise running.ended_by or LedgerClosed()
    if other is not problem:
        raise other


async def abandon_block(
    process: Process, running: OpenTurn, reason: TurnledgerError, failure: Failure | None = None
) -> None:
    """End a turn from outside its block: its ledger is closed, or no task is inside it. The block raises the
    reason when it is left. A turn whose block is being left is left alone."""
    if running.is_leaving:
        return
    running.is_leaving = True
    running.ended_by = reason
    is_stop = isinstance(reason, TurnStopped)
    try:
        failure = None if is_stop else failure or failure_of(reason)
        ended = await uninterrupted(_end(process, running, failure, running.stop_requested))
        if is_stop:
            running.ended_by = TurnStopped(ended.turn) if ended else OutcomeUnknown(UNRECORDED)
    finally:
        _let_go(process, running)


def _let_go(process: Process, running: OpenTurn) -> None:
    running.generator = None  # a frame keeps all its locals alive
    process.running.pop(running.id, None)
    if running.id not in process.doubts and running.id not in process.unfinished:
        process.release(running.id)
    process.waiters.notify(running.conversation.id)


def ended_well(problem: BaseException | None) -> bool:
    """Return whether the block ended well; a cancellation does not."""
    return problem is None


async def _other_reason(running: OpenTurn, problem: BaseException | None) -> BaseException | None:
    """Withdraw the cancellation by which a stop ended the block; return what else ended it, if anything."""
    arrived = problem if isinstance(problem, asyncio.CancelledError) else None
    if arrived is None and running.is_cancelling:
        try:
            await asyncio.sleep(0)  # receive a pending cancellation of the stop here, not in other code
        except asyncio.CancelledError as cancelled:
            arrived = cancelled
    is_alone = running.take_back_cancellation()
    if arrived is not None and not is_alone:
        return arrived
    return None if arrived is problem else problem


async def _leave_superseded(process: Process, running: OpenTurn, problem: BaseException | None) -> None:
    other = await _other_reason(running, problem)
    ended = await uninterrupted(_end(process, running, SUPERSEDED, None))
    if other is None:
        raise _as_gone(ended) or Superseded()
    if other is not problem:
        raise other


def _as_gone(ended: Outcome | None) -> ConversationDeleted | ConversationExpired | None:
    """Return the more precise error if the lane was lost with its conversation."""
    code = ended.failure.code if ended and ended.failure else None
    if code == ConversationDeleted.code:
        return ConversationDeleted()
    return ConversationExpired() if code == ConversationExpired.code else None


async def _leave_stopped(process: Process, running: OpenTurn, problem: BaseException | None) -> None:
    other = await _other_reason(running, problem)
    ended = await uninterrupted(_end(process, running, None, running.stop_requested))
    if other is not None:
        if other is not problem:
            raise other
        return
    if ended is None:
        raise OutcomeUnknown(UNRECORDED) from None
    if running.was_stopped_elsewhere:
        raise TurnStopped(ended.turn) from None


async def _commit(process: Process, running: OpenTurn) -> None:
    """Commit; if that fails, end the attempt before the error is raised."""
    try:
        if running.recording.locked():
            async with running.recording:
                pass  # wait for a write of another task, which belongs to the turn; no new one can begin
        request = running.to_commit()
        turn = await commit_turn(process, running, request)
    except CommitOutcomeUnknown:
        raise
    except StoreUnavailable as error:
        # Ending it would have to wait for the same store.
        put_off_end(process, running.to_end(failure_of(error), None), running, error)
        raise
    except TurnledgerError as error:
        gone = _as_gone(await _end(process, running, failure_of(error), None))
        if gone is not None:
            raise gone from None
        raise
    history = running.snapshot.history
    if isinstance(history, History):  # not a tail: the cache holds prefixes
        process.cache.keep(turn.branch, history.followed_by([turn]))
    if running.is_resent:
        _remember(process, running, turn, request)
    running.finish(AttemptState.COMPLETED, turn, None)


def _remember(process: Process, running: OpenTurn, turn: Turn, request: CommitRequest) -> None:
    """Cache what its client will send again, for the next request."""
    process.cache.follow(turn)
    if request.fork is None:
        conversation, branch = running.conversation, running.branch
        # Byte count and preview are outdated; they are read from the store when needed.
        line = LatestLine(
            behind(branch, request, branch.bytes, branch.preview),
            running.flag_version,
            turn.is_plain_answer,
            conversation.scope,
        )
        process.cache.keep_line(conversation, line)


async def commit_turn(process: Process, running: OpenTurn, request: CommitRequest) -> Turn:
    """Commit the turn. An unavailable store is retried for a while. An error from the commit itself means an
    unknown outcome, which is resolved before it is reported; if that takes too long, raises
    CommitOutcomeUnknown, and recovery continues. A cancelled caller waits for no further try."""
    is_in_doubt = False
    patience_ends = process.clock.monotonic() + process.limits.commit_patience
    delay = FIRST_DELAY
    while True:
        try:
            if is_in_doubt:
                return await _try_again(process, request)
            return await process.store.transact(commit, request, request.attempt.owner)
        except StoreError as error:
            is_over = process.clock.monotonic() >= patience_ends or is_cancelled()
            if is_in_doubt and is_over:
                process.doubts[running.id] = running
                raise CommitOutcomeUnknown(f"{UNKNOWN} Store: {error}") from error
            if not is_in_doubt and isinstance(error, OutcomeUnknown):
                is_in_doubt = True
                patience_ends = process.clock.monotonic() + process.limits.doubt_patience
                continue
            if not is_in_doubt and (is_over or not isinstance(error, StoreUnavailable)):
                raise
        await asyncio.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY)


async def _try_again(process: Process, request: CommitRequest) -> Turn:
    """Resolve the lost commit, and commit again under the raised fence if it did not happen."""
    doubt = DoubtRequest(request.lane, request.turn.id, process.lease)
    owner = request.attempt.owner
    certainty = await process.store.transact(resolve_doubt, doubt, owner)
    if certainty.turn is not None:
        return certainty.turn
    if certainty.fence is None:
        raise Superseded
    return await process.store.transact(commit, replace(request, fence=certainty.fence), owner)


async def _end(
    process: Process, running: OpenTurn, failure: Failure | None, on_stop: OnStop | None
) -> Outcome | None:
    """End the turn other than by commit; return None if the store cannot write now: recovery repeats it."""
    async with running.recording:
        request = running.to_end(failure, on_stop)
    ended = await end_attempt(process, request, running)
    if ended is not None:
        running.finish(ended.state, ended.turn, ended.failure)
    return ended


async def end_attempt(process: Process, request: EndRequest, running: OpenTurn | None) -> Outcome | None:
    """End an attempt in the store; return None if it cannot write now: recovery repeats it."""
    try:
        return await process.persist(end, request, request.owner)
    except TurnledgerError as error:
        put_off_end(process, request, running, error)
        return None


def put_off_end(
    process: Process, request: EndRequest, running: OpenTurn | None, error: TurnledgerError
) -> None:
    """Leave the end of an attempt to recovery, until the store can write it."""
    process.outage.note(error, "turn_end_postponed", turn=request.attempt, conversation=request.conversation)
    process.unfinished[request.attempt] = (request, running)


async def end_as_failed(process: Process, begun: Begun, problem: BaseException) -> None:
    """End a turn that took its lane and then could not start."""
    attempt: Attempt = begun.attempt
    request = EndRequest(
        owner=attempt.owner,
        conversation=attempt.conversation,
        branch=attempt.branch,
        attempt=attempt.id,
        fence=begun.branch.fence,
        failure=failure_of(problem),
        on_stop=None,
        sent=None,
        now=process.clock.now_ms(),
    )
    try:
        ended = await uninterrupted(end_attempt(process, request, None))
        if isinstance(problem, asyncio.CancelledError):
            _tell_outcome(process, problem, attempt.id, ended.turn if ended else None)
    finally:
        if attempt.id not in process.unfinished:
            process.release(attempt.id)
        process.waiters.notify(attempt.conversation)


def failure_of(problem: BaseException) -> Failure:
    if isinstance(problem, asyncio.CancelledError):
        return Failure("cancelled", "it was cancelled")
    name = type(problem).__name__
    text = str(problem)[:MESSAGE_LIMIT].encode("utf-8", "backslashreplace").decode()
    if isinstance(problem, TurnledgerError):
        return Failure(problem.code, text or name)
    return Failure(name, f"{name}: {text}" if text else name)
