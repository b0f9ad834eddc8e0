"""The pointer: only certain transactions may change which branch a conversation shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from turnledger.engine.attempt.commit_in_doubt import DoubtRequest
from turnledger.engine.attempt.dead_process import TakeOverRequest
from turnledger.engine.attempt.end import EndRequest
from turnledger.engine.attempt.stop import StopRequest
from turnledger.engine.conversations.details import UpdateRequest
from turnledger.engine.history import line
from turnledger.engine.lifecycle.delete import DeleteRequest
from turnledger.engine.lifecycle.moves import ForkRequest, MoveResult, Switch, Undo
from turnledger.engine.ports import Tables
from turnledger.engine.turn.begin import BeginRequest, Begun
from turnledger.engine.turn.commit import CommitRequest
from turnledger.engine.turn.queue import AbandonRequest
from turnledger.engine.turn.running_turn import RecordRequest
from turnledger.model.conversation import Branch, Conversation, ConversationState
from turnledger.model.ids import BranchId
from turnledger.model.turn import Attempt, Turn, TurnKind
from turnledger.testing.simulation.world import World, effects_in


@dataclass(frozen=True)
class ShownBefore:
    """A conversation before a transaction, and the attempt that holds its lane."""

    conversation: Conversation
    running: Attempt | None
    effects_there: frozenset[str] = frozenset()
    """Effects on the branch that the request switches to."""


async def read_before(tables: Tables, request: Any) -> ShownBefore | None:
    """Read the conversation of a request; None if there is no live one."""
    conversation = await _conversation_of(tables, request)
    if conversation is None or conversation.state is not ConversationState.LIVE:
        return None
    lane = await tables.branch(conversation.branch)
    running = lane.running if lane else None
    attempt = await tables.attempt(running) if running else None
    return ShownBefore(conversation, attempt, frozenset(await _effects_there(tables, request)))


async def _effects_there(tables: Tables, request: Any) -> list[str]:
    if not isinstance(request, BeginRequest) or not isinstance(request.move, Switch):
        return []
    return [effect for turn in await turns_on(tables, request.move.branch) for effect in effects_in(turn)]


async def _conversation_of(tables: Tables, request: Any) -> Conversation | None:
    match request:
        case BeginRequest():
            return await target_conversation(tables, request)
        case CommitRequest():
            return await tables.conversation(request.attempt.conversation)
        case EndRequest() | StopRequest() | ForkRequest():
            return await tables.conversation(request.conversation)
        case UpdateRequest() | DeleteRequest():
            return await tables.conversation(request.id)
        case TakeOverRequest():
            return await tables.conversation(request.ref.conversation)
        case RecordRequest() | DoubtRequest():
            branch = await tables.branch(request.branch)
            return await tables.conversation(branch.conversation) if branch else None
        case AbandonRequest():
            attempt = await tables.attempt(request.attempt)
            return await tables.conversation(attempt.conversation) if attempt else None
    return None


async def target_conversation(tables: Tables, request: BeginRequest) -> Conversation | None:
    """Return the conversation of a request: where it or its idempotency_key began, else where it waits unless
    that was deleted, else its target."""
    target = request.target
    began = await tables.attempt(request.attempt)
    claim = await tables.claim(request.key.text) if request.key else None
    first = began or claim
    sent_to = first.conversation if first else target.id
    if sent_to is not None:
        return await tables.conversation(sent_to)
    ticket = request.round.ticket or await tables.ticket(request.attempt)
    waits = await tables.conversation(ticket.conversation) if ticket else None
    if waits is not None and not waits.is_deleted:
        return waits
    if target.conversation_key is None:
        return None
    return await tables.conversation_by_key(target.scope, target.conversation_key)


async def check_pointer(
    tables: Tables, request: Any, result: Any, before: ShownBefore, world: World
) -> AsyncIterator[str]:
    """Find forbidden changes of the pointer."""
    was = before.conversation
    now = await tables.conversation(was.id)
    if now is None:
        return
    has_moved_on = was.conversation_key is not None and now.conversation_key is None
    if isinstance(result, Begun) and result.conversation.id != was.id and not has_moved_on:
        yield f"{result.attempt.id} began in {result.conversation.id}, but belongs to {was.id}"
    elif isinstance(result, Begun) and result.branch.id != now.branch and not has_moved_on:
        is_beside = request.content.after is not None and result.branch.is_side
        if not is_beside:
            yield f"{result.attempt.id} began on {result.branch.id}, which is not current"
    # A repeated commit no longer holds the lane, and the conversation may have moved since.
    commits = isinstance(result, Turn) and before.running is not None and before.running.id == result.id
    if commits and result.branch != now.branch:
        yield f"{result.id} was committed, and its branch is not current"
    if now.branch == was.branch:
        return
    if now.branch not in await _allowed_branches(tables, request, before):
        yield f"{was.id} shows {now.branch}, which no request allows"
    if await tables.tickets(was.branch):
        yield f"tickets were left behind on {was.branch}"
    async for problem in _check_left_out(tables, request, before, now, world):
        yield problem
    if isinstance(result, MoveResult):
        world.moves[request.attempt] += 1
        if world.moves[request.attempt] > 1:
            what = "undo" if isinstance(request.move, Undo) else "switch"
            yield f"the {what} {request.attempt} was carried out twice"
        if request.key is not None:
            world.moves_by_key[request.key.text] += 1
            if world.moves_by_key[request.key.text] > 1:
                yield f"the request under {request.key.text!r} was carried out twice"


async def _allowed_branches(tables: Tables, request: Any, before: ShownBefore) -> set[BranchId]:
    earned: set[BranchId] = set()
    if isinstance(request, CommitRequest) and request.fork is not None:
        earned.add(request.fork.branch)
    if isinstance(request, BeginRequest) and request.move is not None:
        earned.add(request.move.branch)
    if before.running is not None and before.running.fork is not None:
        kept = await tables.turn(before.running.id)
        if kept is not None and kept.kind is TurnKind.INTERRUPTED:
            earned.add(before.running.fork.branch)
    return earned


async def _check_left_out(
    tables: Tables, request: Any, before: ShownBefore, now: Conversation, world: World
) -> AsyncIterator[str]:
    """Find what the new line lacks: effects of incomplete turns that were not to be forgotten, and for an
    undo all turns but the last."""
    move = request.move if isinstance(request, BeginRequest) else None
    old, new = await turns_on(tables, before.conversation.branch), await turns_on(tables, now.branch)
    listed = {effect for turn in new for effect in effects_in(turn)}
    if isinstance(move, Switch):
        for effect in sorted((listed - before.effects_there) & world.forgotten_effects):
            yield f"{now.branch} has {effect}, which was forgotten"
        listed |= world.forgotten_effects
    for turn in old:
        missing = set(world.unfinished_effects(turn)) - listed
        if isinstance(move, Undo) and move.forget:
            if turn.kind is not TurnKind.COMPLETED:
                # Also effects that a process judged dead causes later.
                world.forgotten_effects |= set(effects_in(turn)) - listed
        elif missing:
            yield f"{now.branch} leaves out what the tools of {turn.id} did: {min(missing)}"
    if isinstance(move, Undo) and before.running is None:
        expected = [turn.id for turn in old if turn.kind is not TurnKind.SETTLED][:-1]
        if [turn.id for turn in new if turn.kind is not TurnKind.SETTLED] != expected:
            yield f"{now.branch} is not the old line without its last turn"


async def turns_on(tables: Tables, branch: Branch | BranchId) -> list[Turn]:
    found = branch if isinstance(branch, Branch) else await tables.branch(branch)
    return await line.turns_of(tables, found, 0, found.length, found.length) if found else []
