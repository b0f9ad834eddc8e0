"""The observer: checks inside each transaction which attempt holds the lane, waits or is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from turnledger.engine.attempt.client_retries import DeliveryNote
from turnledger.engine.attempt.commit_in_doubt import DoubtRequest
from turnledger.engine.attempt.dead_process import BuryRequest, TakeOverRequest, WithdrawRequest
from turnledger.engine.attempt.end import EndRequest, Outcome
from turnledger.engine.attempt.give_way import GiveWayRequest, note_read
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.attempt.stop import StopRequest
from turnledger.engine.conversations.flags import FlagRequest
from turnledger.engine.lifecycle.delete import DeleteRequest, EndDueRequest
from turnledger.engine.lifecycle.moves import ForkRequest, MoveResult
from turnledger.engine.ports import Inspection, Tables
from turnledger.engine.process import FlushRequest
from turnledger.engine.turn.begin import BeginRequest, Begun
from turnledger.engine.turn.commit import CommitRequest
from turnledger.engine.turn.jobs import TakeRequest
from turnledger.engine.turn.queue import AbandonRequest, Enqueued, Queued
from turnledger.engine.turn.running_turn import RecordRequest
from turnledger.engine.wrapped_store import AnyOperation
from turnledger.errors import ConversationExpired, LedgerClosed
from turnledger.ledger import OWNER
from turnledger.model.conversation import NOBODY, Branch, ConversationState, Ticket
from turnledger.model.flags import SHOWN, Flags, hidden_from_user
from turnledger.model.ids import BranchId, LeaseId, TurnId
from turnledger.model.turn import Attempt, AttemptState, OnBusy, Turn, TurnKind
from turnledger.testing.simulation.oracle import lapses
from turnledger.testing.simulation.oracle.pointer import (
    check_pointer,
    read_before,
    target_conversation,
    turns_on,
)
from turnledger.testing.simulation.oracle.unread import check_yield, note_sign
from turnledger.testing.simulation.world import Hidden, World, effects_in

ALL = 1_000


def observe(operation: AnyOperation, owner: str | None, world: World) -> AnyOperation:
    """Wrap an operation so that the world records and checks it."""

    async def watched(whole: Inspection, request: Any) -> Any:
        tables = whole.of(OWNER)
        shown = await read_before(tables, request)
        kept = await lapses.read_expirable(whole, request) if world.checks_expiry else None
        try:
            if owner is None:
                result = await _run_whole(whole, operation, request, world)
            else:
                result = await _run_and_note(tables, operation, request, world)
        except ConversationExpired:
            world.violations += lapses.check_refusal(kept, request, world) if kept else []
            raise
        if kept is not None and isinstance(result, Begun):
            world.violations += lapses.check_begin(kept, request, result.conversation.id, world)
        if kept is not None:
            world.violations += [each async for each in lapses.check_ends(whole, request, kept, world)]
        if shown is not None:
            world.violations += [
                problem async for problem in check_pointer(tables, request, result, shown, world)
            ]
        return result

    return watched


async def _run_whole(whole: Inspection, operation: AnyOperation, request: Any, world: World) -> Any:
    is_there = isinstance(request, BuryRequest) and await whole.lease(request.lease) is not None
    result = await operation(whole, request)
    if isinstance(request, LeaseId):
        world.note_beat(request)
    if is_there and await whole.lease(request.lease) is None:
        world.note_burial(request.lease)
    return result


async def _run_and_note(tables: Tables, operation: AnyOperation, request: Any, world: World) -> Any:
    if isinstance(request, RecordRequest | FlushRequest):
        return await _run_fenced(tables, operation, request, request.branch, request.attempt, world)
    if isinstance(request, CommitRequest):
        result = await _run_fenced(tables, operation, request, request.lane, request.turn.id, world)
        found = await tables.conversation(request.attempt.conversation)
        if found is None or found.is_deleted:
            world.violations.append(f"{request.turn.id} was committed to a deleted conversation")
        lapses.note_use(world, request.turn.id, request.attempt.conversation)
        if request.undelivered is not None:
            await _note_loss(tables, request.undelivered, world)
        return result
    if isinstance(request, TakeOverRequest | EndRequest | DoubtRequest | AbandonRequest):
        return await _run_end(tables, operation, request, world)
    if isinstance(request, TakeRequest):
        return await _run_take(tables, operation, request, world)
    if isinstance(request, BeginRequest):
        return await _run_begin(tables, operation, request, world)
    if isinstance(request, ForkRequest):
        return await _run_fork(tables, operation, request, world)
    if isinstance(request, GiveWayRequest):
        before = await tables.attempt(request.attempt)
        has_yielded = await operation(tables, request)
        if has_yielded and before is not None and before.stop is None:
            check_yield(world, request.attempt)
        return has_yielded
    if operation is note_read:
        note_sign(world, request)
    unheld = await _unheld_attempt(tables, request) if isinstance(request, StopRequest) else None
    result = await operation(tables, request)
    if unheld is not None and isinstance(request, StopRequest):
        world.recorded_stops.setdefault(unheld.id, unheld.stop or request.policy or unheld.on_stop)
        world.taken_over.add(unheld.id)
    if isinstance(request, list):
        for each in request:
            if isinstance(each, DeliveryNote):
                await _note_loss(tables, each.name, world)
    if isinstance(request, DeleteRequest):
        world.taken_over.update(world.begun_at)
        world.deleted.add(request.id)
        for each in await tables.attempts(request.id, ALL):
            if each.state is AttemptState.RUNNING:
                world.violations.append(f"{each.id} goes on in a deleted conversation")
    if isinstance(request, EndDueRequest):
        # A commit in doubt may have been written, and have expired with its conversation since.
        for attempt, conversation in world.begun_in.items():
            found = await tables.conversation(conversation)
            if found is None or found.state is ConversationState.EXPIRED:
                world.taken_over.add(attempt)
    if isinstance(request, StopRequest):
        _note_stop(request, result, world)
    if isinstance(request, FlagRequest):
        await _note_flags(tables, request, world)
    if isinstance(request, WithdrawRequest):
        # An attempt whose process never received its ticket was not waiting.
        for attempt in request.tickets:
            if attempt not in world.known_waiting:
                world.waiting_since.pop(attempt, None)
    return result


async def _run_begin(tables: Tables, operation: AnyOperation, request: BeginRequest, world: World) -> Any:
    found = await target_conversation(tables, request)
    before = await tables.branch(found.branch) if found else None
    queue = await tables.tickets(before.id) if before else []
    settles_beside = request.content.after is not None or request.move is not None
    beside = await tables.branches(found.id, None, ALL) if found and settles_beside else []
    was_buried = await tables.lease(request.lease) is None
    running = await tables.attempt(before.running) if before is not None and before.running else None
    holder = running.lease if running is not None else None
    result = await operation(tables, request)
    if was_buried and await tables.lease(request.lease) is not None:
        world.note_beat(request.lease)
    if request.retry is not None and request.attempt not in world.begun_at:
        _check_retry(before, request, request.retry.name, result, world)
    world.begins += 1
    after = await tables.branch(before.id) if before else None
    if before is not None and before.running and after is not None and after.running != before.running:
        world.taken_over.add(before.running)
        if holder != NOBODY:
            world.note_burial(world.holders[before.running])
    if isinstance(result, Enqueued) and request.job is not None:
        token = msgspec.json.decode(request.raw_details)["request"]
        world.requests.setdefault(result.attempt, world.jobs[token])
        world.enqueued.add(result.attempt)
        world.waiting_since.setdefault(result.attempt, world.begins)
        lapses.note_use(world, result.attempt, result.conversation)
        ticket = await tables.ticket(result.attempt)
        if request.content.after is not None and ticket is not None and result.attempt == request.attempt:
            turns = await turns_on(tables, ticket.branch)
            behind = [turn for turn in turns if turn.number > _number_of(turns, request.content.after)]
            if not turns or any(turn.kind is not TurnKind.SETTLED for turn in behind):
                world.violations.append(f"{request.attempt} waits behind more than {request.content.after}")
    if isinstance(result, Queued) and request.content.after is not None:
        world.violations.append(f"{request.attempt} waits, although it runs in parallel")
    if isinstance(result, Queued):
        world.waiting_since.setdefault(request.attempt, world.begins)
        if result.interrupted is not None:
            interrupted = await tables.attempt(result.interrupted.id)
            if interrupted is not None:
                _note_recorded(interrupted, world)
    if isinstance(result, Begun):
        key = request.key.text if request.key else None
        is_new = request.attempt not in world.begun_at
        world.begun_at.setdefault(request.attempt, (world.begins, key))
        world.begun_in[request.attempt] = result.conversation.id
        lapses.note_use(world, request.attempt, result.conversation.id)
        lane = result.branch.id
        target = result.attempt.fork.branch if result.attempt.fork else lane
        world.places.setdefault(request.attempt, (lane, target))
        world.heads.setdefault(request.attempt, result.branch.head)
        world.holders.setdefault(request.attempt, request.lease)
        if world.records_model_views:
            world.hidden_at_begin.setdefault(request.attempt, world.hidden)
            await _note_replaced(tables, request, result.attempt, world)
            if request.content.seen is not None:
                world.unseen_at_begin.setdefault(
                    request.attempt, await _hidden_from_user(tables, request, lane)
                )
        # The kept turn of a dead holder may have moved the queue to another branch.
        if is_new and (before is None or before.id == lane or request.content.after is None):
            _check_order(queue, request, world)
        if before is not None and request.content.after is not None:
            world.violations += [
                problem
                async for problem in _check_beside(tables, before, request, result, world, is_new=is_new)
            ]
    appends = (
        request.content.is_whole
        and isinstance(result, SharedOutcome)
        and result.attempt == request.attempt
        and result.outcome is not None
        and result.outcome.turn is not None
        and request.attempt not in world.begun_at
    )
    if appends:
        key = request.key.text if request.key else None
        world.begun_at[request.attempt] = (world.begins, key)
        world.begun_in[request.attempt] = result.conversation
        lapses.note_use(world, request.attempt, result.conversation)
        _check_order(queue, request, world)
    if appends or isinstance(result, Begun | MoveResult):
        if await tables.ticket(request.attempt) is not None:
            world.violations.append(f"{request.attempt} left its ticket in the queue")
        if before is not None:
            waited = (before.unsettled, before.running)
            world.settled_by_begin.update(attempt for attempt in waited if attempt is not None)
    world.settled_by_begin.update(each.unsettled for each in beside if each.unsettled is not None)
    moves = found is not None and isinstance(result, MoveResult) and result.branch.id != found.branch
    if moves and await _is_shown(tables, request, result.branch.id):
        _check_order(queue, request, world)
    return result


async def _run_take(tables: Tables, operation: AnyOperation, request: TakeRequest, world: World) -> Any:
    """Check that work begins in order, and record by which process it runs."""
    ticket, before = await tables.ticket(request.id), await tables.attempt(request.id)
    queue = await tables.tickets(ticket.branch) if ticket else []
    lane = await tables.branch(ticket.branch) if ticket else None
    result = await operation(tables, request)
    if not isinstance(result, Begun):
        return result
    attempt = result.attempt
    world.holders[attempt.id] = request.lease
    if before is not None:
        world.resumes[attempt.id] += before.lease == NOBODY
        world.taken_over.add(attempt.id)
        return result
    world.begins += 1
    world.begun_at.setdefault(attempt.id, (world.begins, attempt.idempotency_key))
    world.begun_in[attempt.id] = attempt.conversation
    world.places.setdefault(attempt.id, (attempt.branch, attempt.branch))
    world.heads.setdefault(attempt.id, result.branch.head)
    if world.records_model_views:
        world.hidden_at_begin.setdefault(attempt.id, world.hidden)
    lapses.note_use(world, attempt.id, attempt.conversation)
    if lane is not None and lane.unsettled is not None:
        world.settled_by_begin.add(lane.unsettled)
    if ticket is not None and queue[0] != ticket:
        world.violations.append(f"{attempt.id} passed {queue[0].attempt} in the queue")
    if await tables.ticket(attempt.id) is not None:
        world.violations.append(f"{attempt.id} left its ticket in the queue")
    return result


async def _check_beside(
    tables: Tables, current: Branch, request: BeginRequest, begun: Begun, world: World, *, is_new: bool
) -> AsyncIterator[str]:
    """Check a turn that follows another one without waiting: its line ends with that turn and settled ones,
    lacks no effect of the shown line, and is the same whenever its begin is repeated."""
    attempt, made = begun.attempt, begun.branch
    if world.places[attempt.id][0] != made.id:
        yield f"{attempt.id} began on {made.id} and on {world.places[attempt.id][0]}"
    turns = await turns_on(tables, made)
    behind = [turn for turn in turns if turn.number > _number_of(turns, request.content.after)]
    if not behind and request.content.after not in (turns[-1].id if turns else None,):
        yield f"{attempt.id} does not follow {request.content.after}"
    if any(turn.kind is not TurnKind.SETTLED for turn in behind):
        yield f"{attempt.id} follows more than {request.content.after}"
    if not is_new or made.fence > 1 or made.id == current.id:
        return  # an old branch: others may have acted since it was made
    listed = {effect for turn in turns for effect in effects_in(turn)} | world.forgotten_effects
    for turn in await turns_on(tables, current.id):
        if missing := set(world.unfinished_effects(turn)) - listed:
            yield f"{made.id} leaves out what the tools of {turn.id} did: {min(missing)}"


def _number_of(turns: list[Turn], id: TurnId | None) -> int:
    return next((turn.number for turn in turns if turn.id == id), len(turns))


async def _note_loss(tables: Tables, name: str, world: World) -> None:
    """Record which answer is marked as lost."""
    claim = await tables.claim(name)
    if claim is not None and claim.is_lost and claim.sender is not None:
        world.lost_answers[name] = (claim.attempt, claim.sender, claim.expires_at)
    else:
        world.lost_answers.pop(name, None)


def _check_retry(before: Branch | None, request: BeginRequest, name: str, result: Any, world: World) -> None:
    """Check that a retry neither runs nor waits again although its lost answer exists, and that it does not
    receive an answer that other turns follow."""
    lost, sender, expires_at = world.lost_answers.get(name, (None, None, None))
    is_own = sender is not None and world.is_later_try(request.attempt, sender)
    # The clock of the process decides whether the lost answer expired.
    is_over = expires_at is not None and expires_at <= request.round.now
    if isinstance(result, Begun) and is_own and not is_over and before and before.head == lost:
        world.violations.append(f"{request.attempt} runs again although the answer of {lost} was lost")
    if isinstance(result, Queued) and is_own and before is not None and before.running == lost:
        world.violations.append(f"{request.attempt} waits behind {lost}, of which it is a later try")
    is_replay = (
        isinstance(result, SharedOutcome) and result.outcome is not None and result.outcome.turn is not None
    )
    if is_replay and (before is None or before.head != result.attempt):
        world.violations.append(f"{request.attempt} receives {result.attempt}, which other turns follow")
    if isinstance(result, Begun | SharedOutcome):
        world.lost_answers.pop(name, None)


async def _note_replaced(tables: Tables, request: BeginRequest, attempt: Attempt, world: World) -> None:
    """Record the turn that a divergence replaces: by default the last one not settled. A retry that resumes
    a divergence replaces the same turn, whatever its history means since."""
    divergence = request.content.diverge
    if divergence is None:
        if attempt.fork is not None and request.key is not None:
            keyed = [id for id, (_, key) in world.begun_at.items() if key == request.key.text]
            earlier = next(id for id in reversed(keyed) if id in world.replaces)
            world.replaces.setdefault(attempt.id, world.replaces[earlier])
            if earlier in world.repeats:
                world.repeats.add(attempt.id)
        return
    replaced = divergence.replaces
    if replaced is None:
        turns = await turns_on(tables, attempt.branch)
        replaced = next((turn.id for turn in reversed(turns) if turn.kind is not TurnKind.SETTLED), None)
    if replaced is not None:
        world.replaces.setdefault(request.attempt, replaced)
    if divergence.regenerates:
        world.repeats.add(request.attempt)


async def _hidden_from_user(tables: Tables, request: BeginRequest, lane: BranchId) -> Hidden:
    """Return the items hidden from users on a line, by its stored flags: repeated questions copy flags."""
    turns = [turn.id for turn in await turns_on(tables, lane)]
    unseen = hidden_from_user(await tables.flags(turns))
    return frozenset((turn, place) for turn, places in unseen.items() for place in places)


async def _note_flags(tables: Tables, request: FlagRequest, world: World) -> None:
    turn = await tables.turn(request.turn)
    if turn is None:
        return
    flags = world.flags.setdefault(request.turn, {})
    for place in range(len(turn.items)) if request.places is None else request.places:
        before = flags.get(place, SHOWN)
        flags[place] = Flags(
            before.to_model if request.to_model is None else request.to_model,
            before.to_user if request.to_user is None else request.to_user,
        )


async def _is_shown(tables: Tables, request: BeginRequest, branch: BranchId) -> bool:
    id = request.target.id
    found = await tables.conversation(id) if id else None
    return found is not None and found.branch == branch


async def _run_fork(tables: Tables, operation: AnyOperation, request: ForkRequest, world: World) -> Any:
    """Record the turns that a fork begins with, and check that none is missing."""
    source = await tables.conversation(request.conversation)
    before = await tables.branch(source.branch) if source else None
    result = await operation(tables, request)
    if before is not None and before.unsettled is not None:
        world.settled_by_begin.add(before.unsettled)
    made = request.fresh
    if made.id not in world.forks and before is not None:
        turns, others = await turns_on(tables, made.branch), await turns_on(tables, before.id)
        world.forks[made.id] = tuple(turns)
        shared = _shared_turns(others, request.turn)
        copied = [effect for turn in turns[len(shared) :] for effect in effects_in(turn)]
        later = [effect for turn in others[len(shared) :] for effect in world.unfinished_effects(turn)]
        if tuple(turns[: len(shared)]) != shared or not set(later) <= set(copied):
            world.violations.append(f"{made.id} lacks turns or effects of its source")
        if any(turn.kind is not TurnKind.SETTLED for turn in turns[len(shared) :]):
            world.violations.append(f"{made.id} has more than its source")
    return result


def _shared_turns(turns: list[Turn], after: TurnId | None) -> tuple[Turn, ...]:
    """Return the turns that a fork shares: all up to its turn, and the settled ones that follow."""
    end = next((turn.number for turn in turns if turn.id == after), len(turns))
    while end < len(turns) and turns[end].kind is TurnKind.SETTLED:
        end += 1
    return tuple(turns[:end])


async def _run_end(tables: Tables, operation: AnyOperation, request: Any, world: World) -> Any:
    """Check that no fence is raised, and no lane freed, over another attempt than the meant one."""
    meant: Any = request.ref if isinstance(request, TakeOverRequest) else request
    branch = getattr(meant, "branch", None)
    if branch is None:
        attempt = await tables.attempt(meant.attempt)
        ticket = await tables.ticket(meant.attempt)
        branch = attempt.branch if attempt else ticket.branch if ticket else None
    before = await tables.branch(branch) if branch else None
    job = await tables.job(meant.attempt) if _closes(request) else None
    result = await operation(tables, request)
    after = await tables.branch(branch) if branch else None
    if job is not None and before != after:
        left = await tables.job(job.id)
        world.left_by_closing[job.id] += left is not None
        if left is not None and left.resumes != job.resumes:
            world.violations.append(f"a closed ledger used up a resume of {job.id}")
    if before is not None and before != after:
        if not isinstance(request, AbandonRequest):  # giving up is no use
            lapses.note_use(world, meant.attempt, before.conversation)
        if before.running != meant.attempt:
            world.violations.append(f"a fence was raised over {before.running}, meant was {meant.attempt}")
        if isinstance(request, TakeOverRequest):
            world.taken_over.add(meant.attempt)
            if request.dead is not None:
                world.note_burial(world.holders[meant.attempt])
    return result


def _closes(request: Any) -> bool:
    failure = request.failure if isinstance(request, EndRequest) else None
    return failure is not None and failure.code == LedgerClosed.code


def _check_order(queue: list[Ticket], request: BeginRequest, world: World) -> None:
    """Check that a begin passes no ticket that is due before it."""
    own = next((ticket for ticket in queue if ticket.attempt == request.attempt), None)
    is_front = request.policy.on_busy in (OnBusy.INTERRUPT, OnBusy.ROLLBACK)
    for ticket in queue:
        is_able = ticket.deadline > request.round.due and ticket.lease not in request.round.dead
        if ticket is own or not is_able or (is_front and not ticket.front):
            continue
        is_earlier = own is None or ticket.number < own.number or (ticket.front and not is_front)
        if is_earlier:
            world.violations.append(f"{request.attempt} passed {ticket.attempt} in the queue")


async def _unheld_attempt(tables: Tables, request: StopRequest) -> Attempt | None:
    """Return the durable work to stop that no process holds: the stop ends it."""
    found = await tables.conversation(request.conversation)
    branch = await tables.branch(found.branch) if found is not None else None
    name = request.attempt or (branch.running if branch is not None else None)
    attempt = await tables.attempt(name) if name is not None else None
    is_unheld = attempt is not None and attempt.lease == NOBODY and attempt.state is AttemptState.RUNNING
    return attempt if is_unheld else None


def _note_stop(request: StopRequest, result: Attempt | Outcome | None, world: World) -> None:
    if isinstance(result, Attempt):
        _note_recorded(result, world)
    if request.attempt is None or request.attempt in world.begun_at:
        return
    if isinstance(result, Outcome) and result.state is AttemptState.DISCARDED:
        world.stopped_in_queue.add(request.attempt)


def _note_recorded(attempt: Attempt, world: World) -> None:
    """Record a stop. The first one decides, since its caller may already know."""
    if attempt.stop is None:
        world.violations.append(f"{attempt.id} was stopped, and no stop is recorded")
    elif world.recorded_stops.setdefault(attempt.id, attempt.stop) is not attempt.stop:
        world.violations.append(f"the recorded stop of {attempt.id} was replaced by another")


async def _run_fenced(
    tables: Tables,
    operation: AnyOperation,
    request: RecordRequest | FlushRequest | CommitRequest,
    branch: BranchId,
    attempt: TurnId,
    world: World,
) -> Any:
    """Check that only the holder of the lane commits and writes to journal and log."""
    before = await tables.branch(branch)
    is_commit = isinstance(request, CommitRequest)
    committed = await tables.turn(attempt) if is_commit else None
    result = await operation(tables, request)
    # A repeated commit writes nothing.
    wrote = not is_commit or await tables.turn(attempt) != committed
    if wrote and before is not None and before.head != world.heads.get(attempt, before.head):
        world.violations.append(f"{attempt} wrote behind a head that came after it began")
    if wrote and before is not None and (before.running, before.fence) != (attempt, request.fence):
        world.violations.append(f"{attempt} wrote while {before.running} held the lane")
    return result
