"""Moving: what changes which turns a conversation shows without running one. Undo, switch, fork.

Undo and switch take the lane as a turn does, and do all they do in the transaction that gets it: there is no
moment at which they are half done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from turnledger.engine import line
from turnledger.engine.branching import Divergence, fork_at, last_turn, open_branch, place_of, turn_on
from turnledger.engine.conversations import check_live
from turnledger.engine.ending import settle
from turnledger.engine.ports import Tables
from turnledger.errors import BranchNotFound, Superseded
from turnledger.model.conversation import Branch, Conversation, Origin
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.pairing import left_open
from turnledger.model.turn import Turn, TurnKind


class Undo(Struct, frozen=True):
    """Take back the last turn. `branch` is to be made, named by the caller so that undo can be repeated."""

    branch: BranchId
    forget: bool = False
    """Whether settled turns behind it go as well."""


class Switch(Struct, frozen=True):
    """Show another branch of the conversation."""

    branch: BranchId


Move: TypeAlias = Undo | Switch


class Moved(Struct, frozen=True):
    """The conversation shows this branch now."""

    branch: Branch


async def moved_before(tables: Tables, lane: Branch, move: Move) -> Moved | None:
    """The answer to a move that had succeeded already, its first answer lost, or that has nothing to do: it
    needs no lane. None for a new one."""
    if lane.id != move.branch:
        made = await tables.branch(move.branch) if isinstance(move, Undo) else None
        return Moved(made) if made is not None else None
    return Moved(lane)


async def move(tables: Tables, owner: str, lane: Branch, move: Move) -> Moved:
    """Move the conversation whose lane is free and from now on somebody else's. Raises TurnNotFound if there
    is nothing to undo, BranchNotFound if there is no such branch."""
    if isinstance(move, Undo):
        return await _undo(tables, owner, lane, move)
    target = await tables.branch(move.branch)
    if target is None or target.conversation != lane.conversation:
        raise BranchNotFound
    await tables.save_branch(lane)
    if not await tables.move_conversation(lane.conversation, lane.id, target.id):
        raise Superseded
    await tables.move_tickets(lane.id, target.id)
    return Moved(target)


async def _undo(tables: Tables, owner: str, lane: Branch, undo: Undo) -> Moved:
    undone = await last_turn(tables, lane)
    wish = Divergence(branch=undo.branch, replaces=undone.id, forget=undo.forget)
    fork = await fork_at(tables, owner, lane, wish, undone)
    await tables.save_branch(lane)
    made = await open_branch(tables, owner, lane, await place_of(tables, owner, lane, fork))
    return Moved(made)


@dataclass(frozen=True)
class ForkRequest:
    """Ask for a new conversation that begins as another one does, up to a turn, or to its head."""

    owner: str
    conversation: ConversationId
    turn: TurnId | None
    fresh: Conversation
    now: int


async def fork(tables: Tables, request: ForkRequest) -> Conversation:
    """Make a conversation that shares its beginning with another. It copies nothing, and what becomes of the
    other one later is no matter. A running turn goes on; effects that wait are settled first."""
    again = await tables.conversation(request.owner, request.fresh.id)
    if again is not None:
        return again
    found = await tables.conversation(request.owner, request.conversation)
    source = await check_live(tables, found, request.now)
    lane = await tables.branch(source.branch)
    if lane is None:
        raise BranchNotFound
    waiting = await tables.attempt(request.owner, lane.unsettled) if lane.unsettled else None
    if waiting is not None and lane.running is None:
        lane = await settle(tables, lane, waiting, request.now)
        await tables.save_branch(lane)
    await _begin_as(tables, request, lane)
    return request.fresh


async def _begin_as(tables: Tables, request: ForkRequest, lane: Branch) -> None:
    fresh = request.fresh
    wish = Divergence(branch=fresh.branch, after=request.turn or lane.head)
    fork = await fork_at(tables, request.owner, lane, wish)
    base = await tables.turn(request.owner, fork.base) if fork.base is not None else None
    await tables.add_conversation(fresh)
    made = Branch(
        id=fresh.branch,
        conversation=fresh.id,
        head=fork.base,
        length=fork.number,
        start=fork.number,
        settled=min(lane.settled, fork.number),
        pending=left_open(base.items) if base is not None else (),
    )
    await tables.add_branch(made)
    shared = await line.up_to(tables, lane, base) if base is not None else ()
    await tables.add_origin(Origin(branch=made.id, conversation=fresh.id, base=fork.base, line=shared))


class Sibling(Struct, frozen=True):
    """A turn that stands at the same place as another, and the branch that shows it."""

    turn: Turn
    branch: BranchId


@dataclass(frozen=True)
class SiblingsRequest:
    owner: str
    conversation: ConversationId
    turn: TurnId
    limit: int
    now: int


async def siblings(tables: Tables, request: SiblingsRequest) -> list[Sibling]:
    """The turns that were made at the place of a turn of the current branch, itself included, the first made
    first."""
    found = await tables.conversation(request.owner, request.conversation)
    conversation = await check_live(tables, found, request.now)
    lane = await tables.branch(conversation.branch)
    if lane is None:
        raise BranchNotFound
    turn = await turn_on(tables, request.owner, lane, request.turn)
    found_at = {turn.id: Sibling(turn, lane.id)}
    for branch in await _branches_at(tables, conversation, turn, request):
        other = await _first_after(tables, branch, turn.number - 1)
        if other is not None:
            found_at.setdefault(other.id, Sibling(other, branch.id))
    return [found_at[id] for id in sorted(found_at)][: request.limit]


async def _branches_at(
    tables: Tables, conversation: Conversation, turn: Turn, request: SiblingsRequest
) -> list[Branch]:
    """The branches of a conversation that go on at the place of this turn: those made from the turn before
    it, and the one that this turn before stands on."""
    made = await tables.origins(conversation.id, turn.parent, request.limit)
    found = [await tables.branch(origin.branch) for origin in made]
    if turn.parent is None:
        found.append(await tables.first_branch(conversation.id))
    else:
        before = await tables.turn(request.owner, turn.parent)
        found.append(await tables.branch(before.branch) if before is not None else None)
    return [branch for branch in found if branch is not None and branch.conversation == conversation.id]


async def _first_after(tables: Tables, branch: Branch, number: int) -> Turn | None:
    """The first own turn of a branch behind this number that was not settled."""
    while number < branch.length:
        number += 1
        turn = await line.turn_at(tables, branch, number)
        if turn is not None and turn.kind is not TurnKind.SETTLED:
            return turn
    return None
