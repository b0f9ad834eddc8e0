"""Branching: where an edit commits, and the branch that is made with it.

An edit holds the lane of the current branch and leaves that branch as it is. Its commit makes the new branch
and moves the conversation there, in one transaction: the pointer moves only with the commit that earned it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine import line
from turnledger.engine.entry import preview_at
from turnledger.engine.ports import Tables
from turnledger.engine.usage import store_turn
from turnledger.errors import InvalidInput, Superseded, TurnNotFound
from turnledger.model.attempt import Fork
from turnledger.model.conversation import Branch, Origin
from turnledger.model.flags import Flags, FlagsOf
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item
from turnledger.model.pairing import admit, left_open, told_elsewhere, without_answers
from turnledger.model.turn import Turn, TurnKind


class Divergence(Struct, frozen=True, kw_only=True):
    """Asks to go on from an earlier turn of the current branch, on a branch of its own."""

    branch: BranchId
    """The one to be made, named by the caller so that begin can be repeated."""
    after: TurnId | None = None
    """The turn to go on from; None for the very beginning."""
    replaces: TurnId | None = None
    """Or the turn to put another one in the place of."""
    regenerates: bool = False
    """Whether the input is that of the turn replaced: by default the last one that was not settled."""
    forget: bool = False
    """Whether settled turns that come later are left behind."""

    def may_mean(self, last: TurnId) -> bool:
        """Whether it replaces this turn if that is the last one."""
        return self.replaces == last or (self.replaces is None and self.regenerates)


async def last_turn(tables: Tables, lane: Branch) -> Turn:
    """The last turn of the line that was not settled: the one that a person takes for the last.
    Raises TurnNotFound if there is none."""
    number = lane.length
    while number:
        turn = await line.turn_at(tables, lane, number)
        if turn is not None and turn.kind is not TurnKind.SETTLED:
            return turn
        number -= 1
    raise TurnNotFound("There is no turn yet.")


async def replaced(tables: Tables, owner: str, lane: Branch, wish: Divergence) -> Turn | None:
    """The turn that another one is to take the place of, if it is on the line. Raises TurnNotFound, and
    InvalidInput if it cannot be run again."""
    if wish.replaces is None:
        return await last_turn(tables, lane) if wish.regenerates else None
    turn = await turn_on(tables, owner, lane, wish.replaces)
    if wish.regenerates and turn.kind is TurnKind.SETTLED:
        raise InvalidInput("A settled turn tells what tools did, and cannot be run again. Ask anew instead.")
    return turn


async def turn_on(tables: Tables, owner: str, lane: Branch, id: TurnId) -> Turn:
    """The turn of this id, if it is on the line; raises TurnNotFound."""
    turn = await tables.turn(owner, id)
    if turn is None:
        raise TurnNotFound
    await line.up_to(tables, lane, turn)
    return turn


class Place(Struct, frozen=True, kw_only=True):
    """Where a turn goes that does not go behind the head: a fork, and the settled turns carried over."""

    fork: Fork
    carried: tuple[Turn, ...]
    originals: tuple[TurnId, ...] = ()
    """The turns that those carried over are copies of."""
    flags: FlagsOf = {}
    """Those that the turns carried over take along."""
    pending: tuple[Item, ...]
    """The calls that wait for the turn's input to answer them."""
    instructed: int = 0
    """Number of the turn whose instructions are in force here."""
    asked: Mapping[int, Flags] = {}
    """The flags of the input, where that of another turn is asked again."""

    @property
    def head(self) -> TurnId | None:
        return self.carried[-1].id if self.carried else self.fork.base

    @property
    def length(self) -> int:
        return self.fork.number + len(self.carried)


async def fork_at(
    tables: Tables, owner: str, lane: Branch, wish: Divergence, instead_of: Turn | None = None
) -> Fork:
    """Find the turn that the new branch is made from: the one before the turn replaced, or the one asked for,
    or the last of the settled turns that directly follow it. Raises TurnNotFound if it is not on the line."""
    base, number = wish.after, 0
    if instead_of is not None:
        base, number = instead_of.parent, instead_of.number - 1
    elif base is not None:
        number = (await turn_on(tables, owner, lane, base)).number
    if not wish.forget:
        while number < lane.settled:
            follower = await line.turn_at(tables, lane, number + 1)
            if follower is None or follower.kind is not TurnKind.SETTLED:
                break
            base, number = follower.id, follower.number
    repeats = instead_of.id if instead_of is not None and wish.regenerates else None
    return Fork(branch=wish.branch, base=base, number=number, forget=wish.forget, repeats=repeats)


async def place_of(tables: Tables, owner: str, lane: Branch, fork: Fork) -> Place:
    """What a turn on this fork runs on. The same for the same branch and head, whenever it is asked, but for
    the flags, which may change at any time."""
    base = await tables.turn(owner, fork.base) if fork.base is not None else None
    pending = left_open(base.items) if base is not None else ()
    instructed = base.instructed if base is not None else 0
    carried: list[Turn] = []
    originals: list[Turn] = []
    flags: dict[TurnId, Mapping[int, Flags]] = {}
    if not fork.forget and lane.settled > fork.number:
        originals = await line.settled_of(tables, lane, fork.number, lane.settled)
        hidden = await tables.flags(owner, tuple(turn.id for turn in originals))
        for turn in originals:
            before = carried[-1].id if carried else fork.base
            number = fork.number + len(carried) + 1
            input = told_elsewhere(pending, turn.input)
            copy = _carried(turn, fork, before, number, input, instructed)
            carried.append(copy)
            if moved := moved_flags(hidden.get(turn.id, {}), turn.items, (*input, *turn.output)):
                flags[copy.id] = moved
            pending = ()
    place = Place(
        fork=fork,
        carried=tuple(carried),
        originals=tuple(turn.id for turn in originals),
        flags=flags,
        pending=pending,
        instructed=instructed,
    )
    return place if fork.repeats is None else await _with_flags_of(tables, owner, place, fork.repeats)


async def _with_flags_of(tables: Tables, owner: str, place: Place, repeats: TurnId) -> Place:
    """The place with the flags of the input that is asked again there."""
    flags = (await tables.flags(owner, (repeats,))).get(repeats)
    turn = await tables.turn(owner, repeats) if flags else None
    if not flags or turn is None:
        return place
    input = admit(place.pending, asked_again(place, turn))
    return replace(place, asked=moved_flags(flags, turn.items, input))


def _carried(
    turn: Turn,
    fork: Fork,
    parent: TurnId | None,
    number: int,
    input: tuple[Item, ...],
    instructed: int,
) -> Turn:
    """A settled turn as it stands on another branch: what happened, happened there, too. Its input closes the
    calls that wait there and answers none of those that waited where it was; it brings no instructions."""
    return Turn.of(
        id=_derived(turn.id, fork.branch),
        branch=fork.branch,
        number=number,
        parent=parent,
        kind=TurnKind.SETTLED,
        created_at=turn.created_at,
        committed_at=turn.committed_at,
        input=input,
        output=turn.output,
        instructed=instructed,
    )


def moved_flags(flags: Mapping[int, Flags], items: Sequence[Item], told: Sequence[Item]) -> dict[int, Flags]:
    """The flags of a turn's items, at the places where these same items stand in a copy of it."""
    places = {id(item): place for place, item in enumerate(told)} if flags else {}
    return {
        places[id(item)]: flags[at] for at, item in enumerate(items) if at in flags and id(item) in places
    }


def asked_again(place: Place, turn: Turn) -> tuple[Item, ...]:
    """The input of a turn, to be asked again at another place. Where settled turns came between, they have
    closed the calls that its results were for."""
    input = without_answers(turn.input) if place.carried else turn.input
    if not input:
        raise InvalidInput("Only tool results were the input of that turn, and they have no place any more.")
    return input


def _derived(id: TurnId, branch: BranchId) -> TurnId:
    """An id that is the same for the same turn and branch: it may be asked for twice, and is made once. It
    keeps the time of the turn."""
    random = hashlib.sha256(id.raw + branch.raw).digest()
    number = int.from_bytes(id.raw[:6] + random[:10])
    marks, places = 7 << 76 | 0b10 << 62, 0xF << 76 | 0b11 << 62
    return TurnId.trusted((number & ~places | marks).to_bytes(16))


async def open_branch(tables: Tables, owner: str, lane: Branch, place: Place) -> Branch:
    """Make the branch of a fork, with the turns it begins with, and the conversation's current one. The
    caller holds the lane, and saves both branches when it has added what goes behind."""
    fork = place.fork
    base = await tables.turn(owner, fork.base) if fork.base is not None else None
    shared = await line.up_to(tables, lane, base) if base is not None else ()
    made = Branch(
        id=fork.branch,
        conversation=lane.conversation,
        head=place.head,
        length=place.length,
        start=fork.number,
        settled=place.length if place.carried else min(lane.settled, fork.number),
        pending=place.pending,
        instructed=place.instructed,
        preview=await preview_at(tables, owner, base),
    )
    await tables.add_branch(made)
    await tables.add_origin(
        Origin(branch=made.id, conversation=lane.conversation, base=fork.base, line=shared)
    )
    for turn, original in zip(place.carried, place.originals, strict=True):
        log = await tables.turn_log(original)
        made = replace(made, bytes=await store_turn(tables, owner, made, turn, log))
        if turn.id in place.flags:
            await tables.save_flags(owner, turn.id, place.flags[turn.id])
        made = replace(made, preview=await preview_at(tables, owner, turn) or made.preview)
    if made.bytes:
        await tables.save_branch(made)
    if not await tables.move_conversation(lane.conversation, lane.id, made.id):
        raise Superseded
    if lane.last_ticket:
        await tables.move_tickets(lane.id, made.id)
        # Read again: who goes on with it must see that somebody waits there.
        made = await tables.branch(made.id) or made
    return made
