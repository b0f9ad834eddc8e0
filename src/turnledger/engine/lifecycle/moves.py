"""Moves: undo, switch and fork change which turns a conversation shows, without running one.

Undo and switch take the lane as a turn does, and complete in the transaction that gets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.admission import check_admitted
from turnledger.engine.attempt.effect_copies import carry_effects, forget_effects, missing_effects
from turnledger.engine.attempt.fork import (
    Divergence,
    fork_at,
    last_turn,
    make_branch,
    open_branch,
    place_of,
    turn_on,
)
from turnledger.engine.attempt.idempotency import IdempotencyKey, claim_of
from turnledger.engine.attempt.settle import settle
from turnledger.engine.conversations.resolve import branch_shown, live_conversation
from turnledger.engine.feed import record_change
from turnledger.engine.history import line
from turnledger.engine.lifecycle.create import made_under
from turnledger.engine.limits import UNLIMITED, Quota, check_quota
from turnledger.engine.ports import Tables
from turnledger.errors import (
    BranchNotFound,
    ConversationBusy,
    HistoryDiverged,
    InvalidInput,
    Superseded,
)
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Branch, Claim, Conversation
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Turn, TurnKind


class Undo(Struct, frozen=True):
    """Take back the last turn. `branch` is the id of the branch to make, so that undo can be repeated."""

    branch: BranchId
    forget: bool = False
    """Whether its effects, and settled turns after it, are dropped, too."""
    turn: TurnId | None = None
    """The turn that the caller expects to be the last; no other is undone."""


class Switch(Struct, frozen=True):
    """Show another branch of the conversation."""

    branch: BranchId


Move: TypeAlias = Undo | Switch

SWITCHES_KEPT = 8
"""Switches remembered per conversation, to recognize one that is repeated because its result was lost."""


class MoveResult(Struct, frozen=True):
    """The move is done; the conversation now shows this branch."""

    branch: Branch


async def find_earlier_move(tables: Tables, lane: Branch, move: Move, attempt: TurnId) -> MoveResult | None:
    """Return the result of a move that has succeeded before, else None. The current branch does not show it:
    other callers may have moved the conversation there, or on."""
    if isinstance(move, Undo):
        made = await tables.branch(move.branch)
        return MoveResult(made) if made is not None else None
    return MoveResult(lane) if attempt in await tables.switches(lane.conversation) else None


async def find_claimed_move(tables: Tables, claim: Claim, attempt: TurnId) -> MoveResult:
    """Return the result of an earlier move under the same idempotency_key, and drop the ticket."""
    await tables.drop_ticket(attempt)
    shown = await tables.branch(BranchId.trusted(claim.attempt.raw))
    if shown is None:
        raise BranchNotFound
    return MoveResult(shown)


async def check_move(tables: Tables, lane: Branch, move: Move, *, kept: TurnId | None, quota: Quota) -> None:
    """Raise if the move will fail once the running turn was stopped; `kept` is that turn, if it will be
    last."""
    if isinstance(move, Switch):
        if await missing_effects(tables, lane, await _target(tables, lane, move)):
            await check_quota(tables, quota)
    else:
        _check_last(move, (await last_turn(tables, lane)).id if kept is None else kept)


def _check_last(undo: Undo, last: TurnId) -> None:
    if undo.turn not in (None, last):
        raise HistoryDiverged("The last turn changed. Read the chat again, then undo the new last turn.")


async def move(
    tables: Tables, lane: Branch, move: Move, attempt: TurnId, now: int, quota: Quota = UNLIMITED
) -> MoveResult:
    """Move the conversation; the caller has the lane. Raises TurnNotFound without a turn to undo,
    HistoryDiverged if the last turn is another, BranchNotFound, and StorageFull without room for effects."""
    if isinstance(move, Undo):
        return await _undo(tables, lane, move)
    target = await _target(tables, lane, move)
    await tables.save_branch(lane)
    made_before = await tables.switches(lane.conversation)
    await tables.save_switches(lane.conversation, (*made_before, attempt)[-SWITCHES_KEPT:])
    if target.id == lane.id:
        return MoveResult(lane)
    missing = await missing_effects(tables, lane, target)
    if missing and target.running is not None:
        raise ConversationBusy("A turn runs on that branch. Wait for it, or stop it, then switch.")
    target = replace(target, used_at=None)  # shown from now on, so retention spares it
    waiting = await tables.attempt(target.unsettled) if target.unsettled else None
    if waiting is not None:
        target = await settle(tables, target, waiting, now)  # before copies, which close the calls it answers
    await tables.save_branch(target)
    if missing:
        # Copies hold results of any size, on each branch. Refusing hides no effect: the current branch shows
        # them.
        await check_quota(tables, quota)
        target = await carry_effects(tables, target, missing)
    if not await tables.move_conversation(lane.conversation, lane.id, target.id):
        raise Superseded
    if lane.last_ticket:
        await tables.move_tickets(lane.id, target.id)
    return MoveResult(target)


async def _target(tables: Tables, lane: Branch, move: Switch) -> Branch:
    target = await tables.branch(move.branch)
    if target is None or target.conversation != lane.conversation:
        raise BranchNotFound
    return target


async def _undo(tables: Tables, lane: Branch, undo: Undo) -> MoveResult:
    undone = await last_turn(tables, lane)
    _check_last(undo, undone.id)
    divergence = Divergence(branch=undo.branch, replaces=undone.id, forget=undo.forget)
    fork = await fork_at(tables, lane, divergence, undone)
    if undo.forget:
        await forget_effects(tables, lane, fork.number)
    await tables.save_branch(lane)
    made = await open_branch(tables, lane, await place_of(tables, lane, fork))
    return MoveResult(made)


@dataclass(frozen=True)
class ForkRequest:
    """Asks for a new conversation that begins as another one does, up to a turn, or to its head."""

    conversation: ConversationId
    turn: TurnId | None
    fresh: Conversation
    now: int
    due: int
    quota: Quota = UNLIMITED
    key: IdempotencyKey | None = None
    admitted: int | None = None


async def fork(tables: Tables, request: ForkRequest) -> Conversation:
    """Make a conversation that shares its beginning with another, or return the one made under the same
    idempotency_key. Copies only the effects of later turns, and is independent of the other one from then on.
    Has the same scope. A running turn goes on; effects that wait are settled first. Raises TurnNotFound,
    IdempotencyMismatch, AdmissionMoved, and InvalidInput if the conversation_key is taken."""
    again = await tables.conversation(request.fresh.id)
    if again is not None:
        return again
    await check_admitted(tables, request.admitted)
    earlier = await made_under(tables, request.key, request.due) if request.key else None
    if earlier is not None:
        return earlier
    source = await live_conversation(tables, request.conversation, request.due)
    lane = await branch_shown(tables, source)
    waiting = await tables.attempt(lane.unsettled) if lane.unsettled else None
    if waiting is not None and lane.running is None:
        lane = await settle(tables, lane, waiting, request.now)
        await tables.save_branch(lane)
    fresh = replace(request.fresh, scope=source.scope)
    key = fresh.conversation_key
    if key is not None and await tables.conversation_by_key(fresh.scope, key) is not None:
        raise InvalidInput(f"The conversation_key {key!r} is taken. Use another one.")
    await check_quota(tables, request.quota, adds_chat=True)
    divergence = Divergence(branch=fresh.branch, after=request.turn or lane.head)
    place = await place_of(tables, lane, await fork_at(tables, lane, divergence))
    await tables.add_conversation(fresh)
    await make_branch(tables, lane, place, fresh.id)
    if request.key is not None:
        await tables.save_claim(claim_of(request.key, fresh, fresh.branch, request.now))
    await record_change(tables, ChangeKind.CHAT_CREATED, fresh, request.now)
    return fresh


class Sibling(Struct, frozen=True):
    """A turn at the same place as another, and a branch that shows it."""

    turn: Turn
    branch: BranchId


@dataclass(frozen=True)
class SiblingsRequest:
    conversation: ConversationId
    turn: TurnId
    limit: int
    now: int


async def siblings(tables: Tables, request: SiblingsRequest) -> list[Sibling]:
    """Return the turns at the place of a turn of the current branch, itself included, oldest first; without
    those of side branches."""
    conversation = await live_conversation(tables, request.conversation, request.now)
    lane = await branch_shown(tables, conversation)
    turn = await turn_on(tables, lane, request.turn)
    found_at = {turn.id: Sibling(turn, lane.id)}
    before = await _before(tables, lane, turn)
    branches = [await _branch_of(tables, conversation, before)]
    bases, seen = [before.id if before is not None else None], set[TurnId]()
    while branches or bases:
        if not branches:
            made = await tables.origins(conversation.id, bases.pop(), request.limit)
            branches = [await tables.branch(origin.branch) for origin in made]
            continue
        branch = branches.pop()
        settled, first = await _next(tables, branch, before) if branch is not None else ((), None)
        # Settled turns only show effects, so what was made from one of them is at the same place.
        bases += [each for each in settled if each not in seen]
        seen.update(settled)
        if branch is not None and first is not None and not branch.is_side:
            found_at.setdefault(first.id, Sibling(first, branch.id))
    shown = sorted(found_at)[: request.limit]
    if turn.id not in shown:
        shown[-1] = turn.id
    return [found_at[id] for id in shown]


async def _before(tables: Tables, lane: Branch, turn: Turn) -> Turn | None:
    """Return the last turn before this one that was not settled: it identifies the place on every branch."""
    for number in range(turn.number - 1, 0, -1):
        before = await line.turn_at(tables, lane, number)
        if before is not None and before.kind is not TurnKind.SETTLED:
            return before
    return None


async def _branch_of(tables: Tables, conversation: Conversation, turn: Turn | None) -> Branch | None:
    """Return the branch with this turn; the conversation's first one has the turns of a fork."""
    own = await tables.branch(turn.branch) if turn is not None else None
    if own is not None and own.conversation == conversation.id:
        return own
    return await tables.first_branch(conversation.id)


async def _next(tables: Tables, branch: Branch, before: Turn | None) -> tuple[list[TurnId], Turn | None]:
    """Return the settled turns that follow a turn on a line, and the first that was not settled, if any."""
    settled: list[TurnId] = []
    for number in range(before.number + 1 if before else 1, branch.length + 1):
        turn = await line.turn_at(tables, branch, number)
        if turn is None or turn.kind is not TurnKind.SETTLED:
            return settled, turn
        settled.append(turn.id)
    return settled, None
